// SPDX-License-Identifier: Apache-2.0
// What bellows-ps saves, and goes on from: whoever is killed, weights and the count of gradients
// agree.
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/unit/checkpoint/library_support.h"
#include "tests/unit/paramserver/ps_processes.h"
#include "tests/unit/paramserver/ps_stored.h"

using namespace bellows;
using namespace bellows::ps_test;
using checkpoint_test::Place;
using ps_test::eventually;

namespace {

std::vector<std::string> options(const Place& place, const std::vector<std::string>& more = {}) {
  std::vector<std::string> all = {"--checkpoint-dir=" + place.checkpoints()};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// The newest step that has a name, and may not be committed yet.
std::uint64_t newest_name(const Place& place) {
  std::uint64_t newest = 0;
  const auto names = list_names(place.checkpoints());
  for (const std::string& name : names ? *names : std::vector<std::string>())
    if (name.starts_with("step-"))
      newest = std::max<std::uint64_t>(newest, std::strtoull(name.c_str() + 5, nullptr, 10));
  return newest;
}

}  // namespace

Test(ps_saver, goes_on_where_it_was_stopped_with_other_threads_and_learners, .timeout = 120) {
  const Place place;
  {
    Server server(options(place, {"--threads=2", "--learners=2"}));
    OpenLearner learner;
    cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
    push_some(learner, 0, 100);
    // With its learner there.
    expect_saves(place, server, SIGTERM, 100);
  }
  Server server(options(place, {"--threads=3", "--learners=5"}));
  OpenLearner learner;
  cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
  cr_expect(is_sum(learner.pull(), {100}));
  cr_expect_eq(bellows_ps_updates(learner.ps), 100);
  push_some(learner, 100, 1);
  cr_expect(is_sum(learner.pull(), {101}));
}

Test(ps_saver, stores_whatever_a_learner_was_told_is_applied, .timeout = 120) {
  const Place place;
  std::atomic<std::uint32_t> applied = 0;
  {
    Server server(options(place));
    OpenLearner learner;
    cr_assert_eq(learner.code, BELLOWS_PS_OK);
    std::thread training([&] {
      while (learner.push(0, applied) == BELLOWS_PS_OK &&
             bellows_ps_drain(learner.ps) == BELLOWS_PS_OK)
        ++applied;
    });
    cr_assert(eventually([&] { return applied > 500; }));
    server.signal(SIGTERM);
    cr_expect_eq(server.wait_for_end(), 0);
    training.join();
  }
  const auto stored = read_newest();
  cr_assert(stored);
  cr_expect(stored->gradients[0] == applied || stored->gradients[0] == applied + 1);
  cr_expect(is_sum(stored->weights, {stored->gradients[0]}));
}

// As when its learners have ended, or wait for one another.
Test(ps_saver, stops_where_it_is_told_although_no_update_comes, .timeout = 120) {
  const Place place;
  {
    Server server(options(place, {"--checkpoint-every-ms=1"}));
    OpenLearner learner;
    cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
    push_some(learner, 0, 20);
    // The agent knows of them, so that the stop is after that.
    cr_assert(eventually([&] { return newest_committed(place.checkpoints()) == 20; }));
    kill(place.agent(), SIGUSR1);
    cr_expect_eq(server.wait_for_end(), 0);
  }
  const auto first = read_newest();
  cr_assert(first);
  cr_expect_gt(first->step, 20);
  cr_expect(is_sum(first->weights, {20}));
  // Later steps are later ones, whoever counts them.
  Server server(options(place));
  OpenLearner learner;
  cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
  cr_expect(is_sum(learner.pull(), {20}));
  cr_expect_eq(bellows_ps_updates(learner.ps), 20);
  push_some(learner, 20, 1);
  const pid_t worker = server.worker();
  kill(worker, SIGKILL);
  cr_assert(eventually([&] { return server.worker() != 0 && server.worker() != worker; }));
  push_some(learner, 21, 1);
  server.signal(SIGTERM);
  cr_expect_eq(server.wait_for_end(), 0);
  const auto second = read_newest();
  cr_assert(second);
  cr_expect_eq(second->step, first->step + 2);
  cr_expect_eq(second->gradients[0], 22);
  cr_expect(is_sum(second->weights, {22}));
}

Test(ps_saver, all_that_was_applied_is_there_when_it_has_finished, .timeout = 120) {
  const Place place;
  Server server(options(place));
  OpenLearner learner;
  cr_assert_eq(learner.code, BELLOWS_PS_OK);
  push_some(learner, 0, 50);
  server.signal(SIGUSR2);
  push_some(learner, 50, 7);
  cr_expect_not(server.has_ended(), "its learner is still there");
  // As soon as the signal has come to the server.
  cr_expect(eventually([] { return OpenLearner().code == BELLOWS_PS_ERR_UNAVAILABLE; }),
            "nobody joins any more");
  learner.leave();
  cr_expect_eq(server.wait_for_end(), 0);
  const auto stored = read_newest();
  cr_assert(stored);
  cr_expect_eq(stored->step, 57);
  cr_expect(is_sum(stored->weights, {57}));
}

// All of it is killed at some moment, again and again: what is stored is one state of the training.
Test(ps_saver, the_checkpoint_and_its_counts_agree_after_a_kill_of_all, .timeout = 400) {
  row_width = 10;
  const Place place;
  Counters counters;
  std::uint64_t newest = 0;
  // Each round's learners begin where the checkpoint has them.
  std::vector<std::uint32_t> begun = {0, 0};
  for (int round = 0; round < 6; ++round) {
    std::vector<pid_t> learners;
    {
      Server server(options(place, {"--threads=2", "--checkpoint-every=1"}));
      for (std::uint32_t l = 0; l < 2; ++l) {
        const pid_t child = fork();
        if (child == 0) {
          prctl(PR_SET_PDEATHSIG, SIGKILL);
          alarm(60);
          OpenLearner open;
          if (open.code != BELLOWS_PS_OK) _exit(1);
          const std::uint32_t number = bellows_ps_learner(open.ps);
          for (std::uint32_t q = begun[number];; ++q) {
            if (open.push(number, q) != BELLOWS_PS_OK) _exit(2);
            ++counters[number];
          }
        }
        learners.push_back(child);
      }
      // A disk that others write to has been seen to take so long.
      cr_assert(eventually([&] { return newest_name(place) > newest; }, std::chrono::seconds(60)));
      std::this_thread::sleep_for(std::chrono::milliseconds(50 * round));
      for (const pid_t child : learners) kill(child, SIGKILL);
      server.kill_parent();
    }
    for (const pid_t child : learners) exit_code(child);
    if (const pid_t agent = place.agent(); agent > 0 && round % 2 == 1) kill(agent, SIGKILL);
    // It may still be storing what it was given.
    cr_assert(eventually([&] { return !place.agent_lives(); }));
    const auto stored = read_newest();
    cr_assert(stored);
    cr_expect_geq(stored->step, newest);
    newest = stored->step;
    begun = {stored->gradients[0], stored->gradients[1]};
    cr_assert_eq(begun[0] + begun[1], stored->step);
    cr_assert(is_sum(stored->weights, begun), "round %d", round);
  }
}

Test(ps_saver, a_killed_server_saves_on_with_another, .timeout = 120) {
  row_width = 10;
  const Place place;
  Server server(options(place, {"--checkpoint-every=1"}));
  OpenLearner learner;
  cr_assert_eq(learner.code, BELLOWS_PS_OK);
  std::uint32_t pushed = 0;
  for (int i = 0; i < 5; ++i) {
    pushed = push_some(learner, pushed, 20);
    const pid_t worker = server.worker();
    kill(worker, SIGKILL);
    cr_assert(eventually([&] { return server.worker() != 0 && server.worker() != worker; }));
  }
  push_some(learner, pushed, 20);
  expect_saves(place, server, SIGTERM, 120);
}

namespace {

std::string status_line(pid_t process, const std::string& begin) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(begin)) return line;
  return "";
}

}  // namespace

// What it was told to save is in the memory that its parent keeps.
Test(ps_saver, one_that_is_killed_while_it_stops_is_followed_by_another, .timeout = 120) {
  const Place place;
  Server server(options(place));
  OpenLearner learner;
  cr_assert_eq(learner.code, BELLOWS_PS_OK);
  push_some(learner, 0, 20);
  const pid_t worker = server.worker();
  cr_assert_gt(worker, 0);
  kill(worker, SIGSTOP);
  cr_assert(
      eventually([&] { return status_line(worker, "State:").find('T') != std::string::npos; }));
  server.signal(SIGTERM);
  cr_assert(eventually([&] {
    return status_line(worker, "ShdPnd:").find_first_of("123456789abcdef", 7) != std::string::npos;
  }));
  kill(worker, SIGKILL);
  cr_expect_eq(server.wait_for_end(), 0);
  const auto stored = read_newest();
  cr_assert(stored);
  cr_expect_eq(stored->step, 20);
  cr_expect(is_sum(stored->weights, {20}));
}

Test(ps_saver, goes_on_when_its_agent_is_killed, .timeout = 120) {
  const Place place;
  Server server(options(place, {"--checkpoint-every=1"}));
  OpenLearner learner;
  cr_assert_eq(learner.code, BELLOWS_PS_OK);
  push_some(learner, 0, 20);
  cr_assert(eventually([&] { return newest_committed(place.checkpoints()) == 20; }));
  const pid_t agent = place.agent();
  kill(agent, SIGKILL);
  push_some(learner, 20, 20);
  cr_assert(eventually([&] { return place.agent() > 0 && place.agent() != agent; }));
  push_some(learner, 40, 20);
  expect_saves(place, server, SIGTERM, 60);
}

namespace {

bellows_ps_config adam() {
  bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
  config.rule = BELLOWS_PS_ADAM;
  config.rate = 0.01;
  config.beta1 = 0.9;
  config.beta2 = 0.999;
  return config;
}

/// So many steps of Adam, with gradients of their own, from whatever the directory has; then it
/// stops.
/// The second tensor's gradients have some rows.
std::vector<float> train_on(const Place& place, std::uint32_t first, std::uint32_t count) {
  constexpr std::uint64_t kWidths[] = {0, 8};
  bellows_ps_config config = adam();
  config.width = kWidths;
  Server server(options(place));
  OpenLearner learner({64, 800}, config);
  cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
  for (std::uint32_t q = first; q < first + count; ++q) {
    cr_assert_eq(bellows_ps_begin(learner.ps), BELLOWS_PS_OK);
    auto* gradient = static_cast<float*>(bellows_ps_gradient(learner.ps, 0));
    for (std::uint64_t i = 0; i < 64; ++i) gradient[i] = mark(0, q, i) / 3 - 1;
    const std::uint64_t rows[] = {q % 3, 10 + q % 5, 99};
    cr_assert_eq(bellows_ps_gradient_rows(learner.ps, 1, rows, std::size(rows)), BELLOWS_PS_OK);
    gradient = static_cast<float*>(bellows_ps_gradient(learner.ps, 1));
    for (std::uint64_t i = 0; i < 24; ++i) gradient[i] = mark(0, q, 64 + i) / 7 - 1;
    cr_assert_eq(bellows_ps_push(learner.ps, 1), BELLOWS_PS_OK);
  }
  cr_assert_eq(bellows_ps_drain(learner.ps), BELLOWS_PS_OK);
  const std::vector<float> weights = learner.pull();
  learner.leave();
  server.signal(SIGTERM);
  cr_assert_eq(server.wait_for_end(), 0);
  return weights;
}

}  // namespace

Test(ps_saver, a_rules_state_goes_on_bit_by_bit, .timeout = 120) {
  std::vector<float> whole, parted;
  {
    const Place place;
    whole = train_on(place, 0, 20);
  }
  const Place place;
  (void)train_on(place, 0, 10);
  parted = train_on(place, 10, 10);
  cr_expect(whole == parted);
}

Test(ps_saver, of_another_model_it_says_so, .timeout = 120) {
  const Place place;
  {
    Server server(options(place));
    OpenLearner learner;
    cr_assert_eq(learner.code, BELLOWS_PS_OK);
    push_some(learner, 0, 5);
    server.signal(SIGTERM);
    cr_assert_eq(server.wait_for_end(), 0);
  }
  Server server(options(place));
  {
    const OpenLearner other({64, 99});
    cr_expect_eq(other.code, BELLOWS_PS_ERR_INVALID);
    cr_expect(other.error().find("weights/1") != std::string::npos, "%s", other.error().c_str());
  }
  const OpenLearner larger({64, 100, 28, 7});
  cr_expect_eq(larger.code, BELLOWS_PS_ERR_INVALID);
  // It is there for the right one.
  OpenLearner learner;
  cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
  cr_expect(is_sum(learner.pull(), {5}));
}
