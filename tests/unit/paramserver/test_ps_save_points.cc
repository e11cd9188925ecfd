// SPDX-License-Identifier: Apache-2.0
// The same at each step of a save: of the server, which another one then follows with its memory,
// and of bellows-ps as a whole, of which the checkpoint is left. What is stored has the gradients
// that it says, and all that the learners were told are applied.
#include <criterion/criterion.h>
#include <fmt/core.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "tests/unit/checkpoint/library_support.h"
#include "tests/unit/paramserver/ps_processes.h"
#include "tests/unit/paramserver/ps_stored.h"
#include "tests/unit/paramserver/ps_trial.h"

using namespace bellows;
using namespace bellows::ps_test;
using checkpoint_test::Place;
using ps_test::eventually;

namespace {

constexpr std::size_t kLearners = 2;

std::vector<std::string> options(const Place& place) {
  return {"--threads=2", "--learners=3", "--checkpoint-dir=" + place.checkpoints(),
          "--checkpoint-every-ms=20"};
}

/// Pushes until it is told to stop, so slowly that saves are of different updates and sums short.
class Pushers {
 public:
  Pushers() {
    for (pid_t& child : children_) child = start();
  }
  /// Once all they have pushed is applied.
  void stop() {
    counters_[kStop] = 1;
    for (const pid_t child : children_) cr_expect_eq(exit_code(child), 0);
  }
  void kill_all() const {
    for (const pid_t child : children_) kill(child, SIGKILL);
    for (const pid_t child : children_) cr_expect_neq(exit_code(child), 0);
  }
  std::vector<std::uint32_t> pushed() { return {counters_[0], counters_[1], counters_[2]}; }

 private:
  static constexpr std::size_t kStop = 10;

  pid_t start() {
    const pid_t child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    OpenLearner open;
    if (open.code != BELLOWS_PS_OK) _exit(1);
    const std::uint32_t place = bellows_ps_learner(open.ps);
    while (counters_[kStop] == 0) {
      if (open.push(place, counters_[place]) != BELLOWS_PS_OK) _exit(2);
      ++counters_[place];
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (bellows_ps_drain(open.ps) != BELLOWS_PS_OK) _exit(3);
    _exit(open.leave() == BELLOWS_PS_OK ? 0 : 4);
  }

  Counters counters_;
  pid_t children_[kLearners];
};

void expect_stored(const Place& place, const Trial& trial, std::uint64_t least,
                   const std::optional<std::vector<std::uint32_t>>& pushed) {
  cr_assert(eventually([&] { return !place.agent_lives(); }), "%s", trial.text().c_str());
  const auto stored = read_newest();
  cr_assert(stored || (least == 0 && !pushed), "%s: nothing is stored", trial.text().c_str());
  if (!stored) return;
  cr_expect_geq(stored->step, least, "%s", trial.text().c_str());
  cr_expect_eq(std::accumulate(stored->gradients.begin(), stored->gradients.end(), 0U),
               stored->step, "%s", trial.text().c_str());
  const std::vector<std::uint32_t> counts(stored->gradients.begin(), stored->gradients.begin() + 3);
  cr_expect(!pushed || counts == *pushed, "%s", trial.text().c_str());
  cr_expect(is_sum(stored->weights, counts), "%s", trial.text().c_str());
}

/// The server is killed or stops, another takes over, and it ends as told.
void run_saving(const Trial& trial) {
  const Place place;
  Server server(options(place), WITH_POINTS, trial.environment());
  const Follower follower(trial);
  Pushers pushers;
  pid_t worker = 0;
  cr_assert(eventually([&] {
              worker = server.worker();
              return newest_committed(place.checkpoints()) > 0 && worker != 0;
            }),
            "%s", trial.text().c_str());
  kill(worker, SIGKILL);
  const std::uint64_t before = newest_committed(place.checkpoints());
  cr_assert(eventually([&] { return newest_committed(place.checkpoints()) > before; }), "%s",
            trial.text().c_str());
  pushers.stop();
  server.signal(SIGTERM);
  cr_expect_eq(server.wait_for_end(), 0, "%s", trial.text().c_str());
  expect_stored(place, trial, newest_committed(place.checkpoints()), pushers.pushed());
}

/// The agent is killed, too: it takes seconds until there is another.
void run_without_agent(const Trial& trial) {
  const Place place;
  Server server(options(place), WITH_POINTS, trial.environment());
  const Follower follower(trial);
  Pushers pushers;
  cr_assert(eventually([&] { return newest_committed(place.checkpoints()) > 0; }), "%s",
            trial.text().c_str());
  const pid_t agent = place.agent();
  cr_assert_gt(agent, 0, "%s", trial.text().c_str());
  kill(agent, SIGKILL);
  cr_assert(eventually([&] { return place.agent_lives() && place.agent() != agent; }), "%s",
            trial.text().c_str());
  pushers.stop();
  server.signal(SIGTERM);
  cr_expect_eq(server.wait_for_end(), 0, "%s", trial.text().c_str());
  expect_stored(place, trial, newest_committed(place.checkpoints()), pushers.pushed());
}

/// All of bellows-ps is killed while its server stands still, or, when that is never reached, soon.
void run_killed(const Trial& trial) {
  const Place place;
  Server server(options(place), WITH_POINTS, trial.environment());
  std::uint64_t committed = 0;
  const Pushers pushers;
  cr_assert(eventually([&] {
              committed = newest_committed(place.checkpoints());
              return trial.is_stopped() || (committed > 0 && !trial.is_reached());
            }),
            "%s", trial.text().c_str());
  server.kill_parent();
  pushers.kill_all();
  expect_stored(place, trial, committed, std::nullopt);
}

/// Those of what saves.
std::set<std::string> of_saves(const std::set<std::string>& points) {
  const std::regex saves("ps(5Saver|12PsCheckpoint|3Cut|8ShardCut|8PsServer)");
  std::set<std::string> some;
  for (const std::string& point : points)
    if (std::regex_search(point, saves)) some.insert(point);
  return some;
}

}  // namespace

Test(ps_points, of_the_server_that_saves, .timeout = 3600) {
  const Trial notes, without_agent;
  run_saving(notes);
  run_without_agent(without_agent);
  const auto points = of_saves(notes.noted());
  std::set<std::string> more;
  for (const std::string& point : of_saves(without_agent.noted()))
    if (points.count(point) == 0) more.insert(point);
  auto all = points;
  all.insert(more.begin(), more.end());
  expect_all(all, {"Saver", "PsCheckpoint", "Cut", "ShardCut"}, WITH_POINTS);
  try_all(run_saving, points, 20);
  if (is_long()) try_all(run_without_agent, more, 1);
}

// A cut would be of whatever version each shard happens to have.
Test(ps_points, no_save_begins_before_the_shards_of_a_new_server_know_the_learners,
     .timeout = 120) {
  const Place place;
  const Trial trial("enter 1 _ZN7bellows2ps5Seats5adoptESt6vectorINS0_4SeatESaIS3_EEb", Act::hold);
  Server server(options(place), WITH_POINTS, trial.environment());
  Pushers pushers;
  const std::string begun = "enter 1 _ZN7bellows2ps3Cut5beginENS1_4ThenE";
  const std::string looked = "enter 20 _ZN7bellows2ps5Saver4lookEv";
  pid_t worker = 0;
  cr_assert(eventually([&] {
    worker = server.worker();
    return trial.times(begun) == 1 && trial.times(looked) == 1 && worker != 0;
  }));
  kill(worker, SIGKILL);
  // The next one's saver has had time for many saves.
  cr_assert(eventually([&] { return trial.is_reached() && trial.times(looked) == 2; }));
  cr_expect_eq(trial.times(begun), 1);
  trial.go_on();
  cr_assert(eventually([&] { return trial.times(begun) == 2; }));
  pushers.stop();
  server.signal(SIGTERM);
  cr_expect_eq(server.wait_for_end(), 0);
  expect_stored(place, trial, 1, pushers.pushed());
}

Test(ps_points, of_bellows_ps_that_saves, .timeout = 3600) {
  const Trial notes;
  run_saving(notes);
  int number = 0;
  for (const std::string& point : of_saves(notes.noted()))
    if (is_long() || ++number % 10 == 0) run_killed(Trial(point, Act::pause));
}
