// SPDX-License-Identifier: Apache-2.0
// kill -9, SIGSTOP and SIGCONT, and SIGSTOP and kill -9 of a learner and of bellows-ps wherever a
// function of theirs is called or returns, so at each step of the protocol, of joins, of leaves and
// of what a server does that takes over. The functions are those that a run is seen to call, so a
// new one is a new point. BELLOWS_LONG=1 does everything everywhere; otherwise it is kill -9 at a
// third of the steps of the protocol, and something somewhere.
#include <criterion/criterion.h>
#include <fmt/core.h>

#include <chrono>
#include <thread>

#include "paramserver/wire/ps_report.h"
#include "tests/unit/paramserver/ps_processes.h"
#include "tests/unit/paramserver/ps_trial.h"

using namespace bellows;
using namespace bellows::ps_test;
using std::chrono::milliseconds;

namespace {

/// So that sequences wrap in the middle.
const std::string kFirst = "--first-sequence=4294967285";

/// That it ends as told, and nothing of it is left.
void expect_clean_end(Server& server, const Trial& trial, int signal = SIGTERM) {
  const pid_t worker = server.worker();
  kill(server.pid(), signal);
  cr_expect(eventually([&] { return server.has_ended(); }), "%s", trial.text().c_str());
  // Of one that is to follow, the number is not known yet.
  cr_expect(worker == 0 || kill(worker, 0) != 0, "%s", trial.text().c_str());
  cr_expect_neq(access(server.socket().c_str(), F_OK), 0, "%s", trial.text().c_str());
}

void run_learner(const Trial& trial) {
  row_width = 10;
  Server server({"--threads=2", "--learners=3", "--mode=bounded", "--staleness=1000", kFirst});
  Counters counters;
  const std::uint32_t count = 40, others = 60;
  const pid_t victim = start_learner(0, count, counters, [&] { trial.arm(); });
  siginfo_t ended = {};
  const auto has_ended = [&] {
    return waitid(P_PID, static_cast<id_t>(victim), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == victim;
  };
  cr_expect(eventually([&] { return has_ended() || (trial.stops() && trial.is_stopped()); }), "%s",
            trial.text().c_str());
  // Nobody waits for it.
  cr_expect_eq(exit_code(start_learner(1, others, counters)), 0, "%s", trial.text().c_str());
  trial.go_on();
  const bool dies = trial.ends() && trial.is_reached();
  cr_expect_eq(exit_code(victim), dies ? -1 : 0, "%s", trial.text().c_str());
  OpenLearner reader;
  cr_expect_eq(reader.code, BELLOWS_PS_OK, "%s", trial.text().c_str());
  cr_expect(eventually([&] { return slots_of(server.pid()) == 1; }), "%s", trial.text().c_str());
  const auto weights = reader.pull();
  const std::uint32_t pushed = counters[0];
  cr_expect(is_sum(weights, {pushed, others}) || (dies && is_sum(weights, {pushed + 1, others})),
            "%s", trial.text().c_str());
  reader.leave();
  expect_clean_end(server, trial);
}

/// A learner that stands still from the grant of its seat until that is another's is told so.
void run_late() {
  const Trial trial("enter 1 _ZN7bellows2ps7Learner6attachERKNS0_5GrantEiiiRNS_5plain6HandleE",
                    Act::pause);
  const Server server({"--learners=1"}, WITH_POINTS);
  Counters counters;
  const pid_t late = start_learner(0, 10, counters, [&] { trial.arm(); });
  cr_assert(eventually([&] { return trial.is_stopped(); }));
  cr_expect(eventually([&] { return OpenLearner().code == BELLOWS_PS_OK; }));
  trial.go_on();
  // A push says so, and does not wait in vain.
  cr_expect_eq(exit_code(late), 2);
}

/// A process that says nonsense, and waits until it is put out.
pid_t start_hostile() {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(60);
  OpenLearner open;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("bellows-ps-slot") == std::string::npos) continue;
    // The first number of a slot is what was published.
    *reinterpret_cast<std::atomic<std::uint32_t>*>(std::stoull(line, nullptr, 16)) = 12345;
    break;
  }
  while (bellows_ps_pull(open.ps) == BELLOWS_PS_OK) std::this_thread::sleep_for(milliseconds(1));
  _exit(open.error().find("put this learner out") != std::string::npos ? 0 : 1);
}

void expect_end(pid_t child, int code, const Trial& trial) {
  const int ended = exit_code(child);
  cr_expect_eq(ended, code, "%s: it ends with %d", trial.text().c_str(), ended);
}

void run_server(const Trial& trial) {
  row_width = 10;
  Server server({"--threads=2", "--learners=6", "--mode=bounded", "--staleness=1000", kFirst},
                WITH_POINTS, trial.environment());
  const Follower follower(trial);
  Counters counters;
  OpenLearner reader;
  cr_expect_eq(reader.code, BELLOWS_PS_OK, "%s: %s", trial.text().c_str(), reader.error().c_str());
  cr_expect_eq(OpenLearner({64}).code, BELLOWS_PS_ERR_INVALID, "%s", trial.text().c_str());
  const std::uint32_t count = 60, late = 5;
  const pid_t learners[] = {start_learner(0, count, counters), start_learner(1, count, counters)};
  cr_expect(eventually([&] { return counters[0] > 25 && server.worker() != 0; }), "%s",
            trial.text().c_str());
  // Another takes over.
  kill(server.worker(), SIGKILL);
  const pid_t more[] = {start_learner(2, late, counters), start_hostile()};
  for (const pid_t child : {learners[0], learners[1], more[0], more[1]})
    expect_end(child, 0, trial);
  cr_expect(eventually([&] { return slots_of(server.pid()) == 1; }), "%s", trial.text().c_str());
  cr_expect(is_sum(reader.pull(), {count, count, late}), "%s", trial.text().c_str());
  // Whatever comes of it: the server may be killed meanwhile.
  (void)ps::ask_for_report(server.socket().c_str(), 1000);
  reader.leave();
  expect_clean_end(server, trial, SIGUSR2);
}

/// A process that pushes ones, of which the mean is one, too.
pid_t start_in_step(std::uint32_t learner, std::uint32_t count, Counters& counters) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(60);
  OpenLearner open({64, 64});
  for (std::uint32_t q = 0; q < count; ++q) {
    if (bellows_ps_begin(open.ps) != BELLOWS_PS_OK) _exit(1);
    for (std::size_t t = 0; t < 2; ++t)
      std::fill_n(static_cast<float*>(bellows_ps_gradient(open.ps, t)), 64, 1.0F);
    if (bellows_ps_push(open.ps, 1) != BELLOWS_PS_OK) _exit(2);
    ++counters[learner];
  }
  _exit(open.leave() == BELLOWS_PS_OK ? 0 : 3);
}

/// Learners in step, one of which joins while the other is at work.
void run_in_step(const Trial& trial) {
  row_width = 0;
  Server server({"--threads=2", "--learners=6", "--mode=sync", kFirst}, WITH_POINTS,
                trial.environment());
  const Follower follower(trial);
  Counters counters;
  const std::uint32_t count = 60;
  const pid_t one = start_in_step(0, count, counters);
  cr_expect(eventually([&] { return counters[0] > 5 && server.worker() != 0; }), "%s",
            trial.text().c_str());
  const pid_t two = start_in_step(1, count, counters);
  cr_expect(eventually([&] { return counters[1] > 5 && server.worker() != 0; }), "%s",
            trial.text().c_str());
  kill(server.worker(), SIGKILL);
  for (const pid_t child : {one, two})
    cr_expect_eq(exit_code(child), 0, "%s", trial.text().c_str());
  OpenLearner reader({64, 64});
  cr_assert_eq(reader.code, BELLOWS_PS_OK, "%s: %s", trial.text().c_str(), reader.error().c_str());
  const auto weights = reader.pull();
  const auto steps = bellows_ps_updates(reader.ps);
  cr_expect(steps >= count && steps <= 2 * count, "%s", trial.text().c_str());
  for (const float weight : weights)
    cr_expect_eq(weight, -static_cast<float>(steps), "%s", trial.text().c_str());
  reader.leave();
  expect_clean_end(server, trial);
}

}  // namespace

Test(ps_points, of_a_learner, .timeout = 3600) {
  const Trial notes;
  run_learner(notes);
  const auto points = notes.noted();
  expect_all(points, {"LearnerSteps", "Learner"},
             std::filesystem::read_symlink("/proc/self/exe").string());
  try_all(run_learner, points, 20);
}

Test(ps_points, of_a_learner_whose_seat_is_given_to_another, .timeout = 60) { run_late(); }

Test(ps_points, of_the_server, .timeout = 3600) {
  const Trial notes, in_step;
  run_server(notes);
  run_in_step(in_step);
  const auto points = notes.noted();
  auto all = in_step.noted();
  all.insert(points.begin(), points.end());
  expect_all(all, {"ShardSteps", "ShardLoop", "Seats", "SeatKeeper", "PsServer"}, WITH_POINTS);
  try_all(run_server, points, 90);
}

Test(ps_points, of_the_server_with_learners_in_step, .timeout = 3600) {
  const Trial notes;
  run_in_step(notes);
  try_all(run_in_step, notes.noted(), 180);
}
