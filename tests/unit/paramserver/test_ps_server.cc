// SPDX-License-Identifier: Apache-2.0
// bellows-ps and learners, each a process: what they are told, and who may be killed.
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "paramserver/server/step_watch.h"
#include "tests/unit/paramserver/ps_processes.h"

using namespace bellows;
using namespace bellows::ps_test;
using std::chrono::milliseconds;

Test(ps_server, learners_of_two_processes_share_their_weights, .timeout = 60) {
  const Server server({"--threads=2"});
  Counters counters;
  OpenLearner reader;
  cr_assert_eq(reader.code, BELLOWS_PS_OK, "%s", reader.error().c_str());
  const pid_t one = start_learner(0, 1000, counters), two = start_learner(1, 1000, counters);
  cr_expect_eq(exit_code(one), 0);
  cr_expect_eq(exit_code(two), 0);
  cr_expect(is_sum(reader.pull(), {1000, 1000}));
  cr_expect_eq(bellows_ps_updates(reader.ps), 2000);
}

Test(ps_server, a_killed_server_loses_and_doubles_nothing, .timeout = 120) {
  const Server server({"--threads=2", "--first-sequence=4294967000"});
  Counters counters;
  OpenLearner reader;
  const std::uint32_t count = 4000;
  const pid_t children[] = {start_learner(0, count, counters), start_learner(1, count, counters)};
  pid_t last = 0;
  for (int kills = 0; kills < 8; ++kills) {
    const std::uint32_t before = counters[0] + counters[1];
    cr_assert(eventually([&] {
      return counters[0] + counters[1] > before + 50 && server.worker() != 0 &&
             server.worker() != last;
    }));
    last = server.worker();
    kill(last, SIGKILL);
  }
  for (const pid_t child : children) cr_expect_eq(exit_code(child), 0);
  cr_expect(is_sum(reader.pull(), {count, count}));
}

Test(ps_server, a_killed_learners_gradients_count_once, .timeout = 120) {
  const Server server({"--threads=2", "--learners=3"});
  Counters counters;
  OpenLearner reader;
  const pid_t victim = start_learner(0, 1'000'000, counters);
  const pid_t other = start_learner(1, 3000, counters);
  cr_assert(eventually([&] { return counters[0] > 500; }));
  kill(victim, SIGKILL);
  cr_expect_eq(exit_code(victim), -1);
  cr_expect_eq(exit_code(other), 0);
  // Its seat is free for another, which means that all of its gradients are applied.
  const pid_t next = start_learner(2, 10, counters);
  cr_expect_eq(exit_code(next), 0);
  const auto weights = reader.pull();
  const std::uint32_t pushed = counters[0];
  cr_expect(is_sum(weights, {pushed, 3000, 10}) || is_sum(weights, {pushed + 1, 3000, 10}));
}

Test(ps_server, learners_in_step_get_the_mean, .timeout = 60) {
  const Server server({"--threads=2", "--mode=sync"});
  Counters counters;
  {
    // Nobody begins before all are there.
    OpenLearner first, second;
    cr_assert(first.code == BELLOWS_PS_OK && second.code == BELLOWS_PS_OK);
    for (std::uint32_t q = 0; q < 100; ++q) {
      cr_assert_eq(first.push(0, q), BELLOWS_PS_OK);
      cr_assert_eq(second.push(1, q), BELLOWS_PS_OK);
    }
    cr_assert_eq(bellows_ps_drain(first.ps), BELLOWS_PS_OK);
    const auto weights = first.pull();
    for (std::uint64_t i = 0; i < weights.size(); ++i) {
      float expected = 0;
      for (std::uint32_t q = 0; q < 100; ++q) expected -= (mark(0, q, i) + mark(1, q, i)) / 2;
      cr_assert_eq(weights[i], expected);
    }
    cr_expect_eq(bellows_ps_updates(first.ps), 100);
  }
}

Test(ps_server, learners_in_step_are_told_for_whom_they_wait, .timeout = 60) {
  const Said said;
  const Server server({"--threads=2", "--mode=sync"});
  bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
  config.rate = 1;
  config.wait_ms = 300;
  OpenLearner first({64, 64}, config);
  cr_assert_eq(first.code, BELLOWS_PS_OK);
  Counters counters;
  const pid_t other = fork();
  if (other == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    OpenLearner second({64, 64}, config);
    if (second.code != BELLOWS_PS_OK) _exit(1);
    counters[1] = 1;
    raise(SIGSTOP);
    _exit(second.push(1, 0) == BELLOWS_PS_OK ? 0 : 2);
  }
  cr_assert(eventually([&] { return counters[1] == 1; }));
  cr_assert_eq(first.push(0, 0), BELLOWS_PS_OK);
  cr_expect_eq(bellows_ps_drain(first.ps), BELLOWS_PS_ERR_TIMEOUT);
  cr_expect(first.error().find("it waits for learner 1, with which") != std::string::npos, "%s",
            first.error().c_str());
  const std::string named = "learner 1 (process " + std::to_string(other) + ") has pushed nothing";
  cr_expect(eventually([&] { return said.has(named); }), "%s", said.text().c_str());
  kill(other, SIGCONT);
  cr_expect_eq(bellows_ps_drain(first.ps), BELLOWS_PS_OK, "%s", first.error().c_str());
  cr_expect_eq(exit_code(other), 0);
}

// A step that takes long is told of once, and the next only if it takes twice as long.
Test(ps_server, a_long_step_is_told_of_once) {
  using std::chrono::seconds;
  ps::StepWatch watch;
  const ps::StepWatch::Clock::time_point begin{};
  const ps::Slowest one{7, 1}, other{9, 2};
  const auto stall = [&](const ps::Slowest& missing, int at) {
    return watch.look(missing, begin + seconds(at)).has_value();
  };
  cr_expect_not(stall(ps::Slowest{}, 0) || stall(ps::Slowest{}, 100), "nobody is waited for");
  cr_expect_not(stall(one, 101) || stall(one, 105));
  cr_expect(stall(one, 106));
  cr_expect_not(stall(one, 107));
  cr_expect_not(stall(other, 108) || stall(other, 117), "another step is as long as that was");
  cr_expect(stall(other, 118));
}

Test(ps_server, a_learner_waits_for_the_slowest_when_told_to, .timeout = 60) {
  const Server server({"--mode=bounded", "--staleness=3", "--threads=2"});
  bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
  config.rate = 1;
  config.wait_ms = 300;
  OpenLearner fast({64, 64}, config);
  cr_assert_eq(fast.code, BELLOWS_PS_OK);
  const auto step = [](OpenLearner& learner) {
    const int rc = bellows_ps_pull(learner.ps);
    return rc == BELLOWS_PS_OK ? learner.push(0, 0) : rc;
  };
  // Alone it waits for nobody.
  for (int i = 0; i < 20; ++i) cr_assert_eq(step(fast), BELLOWS_PS_OK, "%s", fast.error().c_str());
  cr_assert_eq(bellows_ps_drain(fast.ps), BELLOWS_PS_OK);
  std::optional<OpenLearner> slow;
  slow.emplace(std::vector<std::uint64_t>{64, 64}, config);
  cr_assert_eq(slow->code, BELLOWS_PS_OK);
  int ahead = 0;
  while (step(fast) == BELLOWS_PS_OK) ++ahead;
  cr_expect_eq(ahead, 4);
  cr_expect_neq(fast.error().find("learner 1 is too far behind"), std::string::npos, "%s",
                fast.error().c_str());
  for (int i = 0; i < 3; ++i) {
    cr_expect_eq(step(*slow), BELLOWS_PS_OK);
    cr_expect_eq(bellows_ps_drain(slow->ps), BELLOWS_PS_OK);
    cr_expect_eq(step(fast), BELLOWS_PS_OK);
  }
  cr_expect_eq(step(fast), BELLOWS_PS_ERR_TIMEOUT);
  // Who has ended holds up nobody.
  slow.reset();
  for (int i = 0; i < 20; ++i) cr_expect_eq(step(fast), BELLOWS_PS_OK, "%s", fast.error().c_str());
}

Test(ps_server, clips_gradients_of_each_type_by_their_norm, .timeout = 60) {
  // 3 as each type has it.
  const std::pair<int, std::vector<unsigned char>> threes[] = {{BELLOWS_PS_F32, {0, 0, 0x40, 0x40}},
                                                               {BELLOWS_PS_BF16, {0x40, 0x40}},
                                                               {BELLOWS_PS_F16, {0, 0x42}}};
  for (const auto& [type, three] : threes) {
    const Server server;
    bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
    config.rate = 1;
    config.gradient_type = type;
    config.clip_norm = 2;
    OpenLearner learner({36, 64}, config);
    cr_assert_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
    cr_assert_eq(bellows_ps_begin(learner.ps), BELLOWS_PS_OK);
    for (const std::size_t t : {0, 1})
      for (std::size_t i = 0; i < (t ? 64 : 36) * three.size(); ++i)
        static_cast<unsigned char*>(bellows_ps_gradient(learner.ps, t))[i] =
            three[i % three.size()];
    cr_assert_eq(bellows_ps_push(learner.ps, 1), BELLOWS_PS_OK);
    cr_assert_eq(bellows_ps_drain(learner.ps), BELLOWS_PS_OK);
    // Of 100 elements the norm was 30.
    for (const float weight : learner.pull())
      cr_expect(weight < -0.199 && weight > -0.201, "type %d: %g", type, weight);
  }
}

Test(ps_server, says_why_a_learner_is_refused, .timeout = 60) {
  const Server server({"--learners=1"});
  OpenLearner first;
  cr_assert_eq(first.code, BELLOWS_PS_OK);
  const OpenLearner second;
  cr_expect_eq(second.code, BELLOWS_PS_ERR_FULL);
  cr_expect(second.error().find("--learners") != std::string::npos, "%s", second.error().c_str());
  const OpenLearner other_model({64});
  cr_expect_eq(other_model.code, BELLOWS_PS_ERR_INVALID);
  cr_expect(other_model.error().find("a learner has 1 tensors, and the first has 3: all learners "
                                     "must have the same model") != std::string::npos,
            "%s", other_model.error().c_str());
  const OpenLearner other_size({64, 100, 29});
  cr_expect(other_size.error().find("tensor 2 of a learner has 29 elements, and that of the first "
                                    "28: all") != std::string::npos,
            "%s", other_size.error().c_str());
  bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
  const bellows_ps_group groups[] = {{1, 0}, {1, 0}};
  const std::uint32_t group_of[] = {0, 1, 0};
  config.groups = 2;
  config.group = groups;
  config.group_of = group_of;
  const OpenLearner other_group({64, 100, 28}, config);
  cr_expect(
      other_group.error().find("tensor 1 of a learner is in group 1, and that of the first in "
                               "group 0: all") != std::string::npos,
      "%s", other_group.error().c_str());
  const OpenLearner other_terms({64, 100, 28}, 0.5);
  cr_expect_eq(other_terms.code, BELLOWS_PS_ERR_INVALID);
  cr_expect(other_terms.error().find("optimizer") != std::string::npos);
  cr_expect_eq(first.leave(), BELLOWS_PS_OK);
  const OpenLearner third;
  cr_expect_eq(third.code, BELLOWS_PS_OK);
}

Test(ps_server, a_tensor_that_nobody_can_have_is_named, .timeout = 60) {
  const Server server;
  bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
  const float weight = 0;
  const float* const initial[] = {&weight, &weight};
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1} << 61, UINT64_MAX}) {
    const std::uint64_t counts[] = {1, count};
    bellows_ps_t* ps = nullptr;
    cr_expect_eq(bellows_ps_join(&config, counts, initial, 2, &ps), BELLOWS_PS_ERR_INVALID);
    const std::string sentence = bellows_ps_error(ps);
    cr_expect(sentence.find("tensor 1 has " + std::to_string(count) + " elements: there may be") !=
                  std::string::npos,
              "%s", sentence.c_str());
    bellows_ps_leave(ps);
  }
}

Test(ps_server, that_has_ended_for_good_is_not_waited_for, .timeout = 60) {
  Server server;
  OpenLearner learner;
  cr_assert_eq(learner.code, BELLOWS_PS_OK);
  server.kill_parent();
  cr_expect(eventually([&] { return learner.push(0, 0) != BELLOWS_PS_OK; }));
  cr_expect(learner.error().find("has ended") != std::string::npos, "%s", learner.error().c_str());
}

Test(ps_server, without_one_a_learner_says_so, .timeout = 60) {
  setenv("BELLOWS_PS_SOCKET", "/nowhere/ps", 1);
  const OpenLearner learner;
  cr_expect_eq(learner.code, BELLOWS_PS_ERR_UNAVAILABLE);
  cr_expect(learner.error().find("/nowhere/ps") != std::string::npos);
}

Test(ps_server, who_joins_while_others_push_reads_whole_weights, .timeout = 120) {
  const Server server({"--learners=3"});
  const std::vector<std::uint64_t> counts = {4096};
  const auto push_ones = [&](std::uint32_t count) {
    const pid_t child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(100);
    OpenLearner learner(counts);
    for (std::uint32_t q = 0; q < count; ++q) {
      if (bellows_ps_begin(learner.ps) != BELLOWS_PS_OK) _exit(1);
      std::fill_n(static_cast<float*>(bellows_ps_gradient(learner.ps, 0)), counts[0], 1.0F);
      if (bellows_ps_push(learner.ps, 1) != BELLOWS_PS_OK) _exit(2);
    }
    _exit(learner.leave() == BELLOWS_PS_OK ? 0 : 3);
  };
  const pid_t pushers[] = {push_ones(100'000'000), push_ones(100'000'000)};
  for (int joins = 0; joins < 60; ++joins) {
    OpenLearner reader(counts);
    cr_assert_eq(reader.code, BELLOWS_PS_OK, "%s", reader.error().c_str());
    // The first pull of one of which a shard could not know yet.
    const auto weights = reader.pull();
    for (int looks = 0; looks < 20; ++looks)
      for (const float weight : weights) cr_assert_eq(weight, weights[0]);
    const float* held = bellows_ps_weights(reader.ps, 0);
    for (std::uint64_t i = 0; i < counts[0]; ++i) cr_assert_eq(held[i], weights[0]);
  }
  for (const pid_t pusher : pushers) kill(pusher, SIGKILL);
  for (const pid_t pusher : pushers) cr_expect_eq(exit_code(pusher), -1);
}

Test(ps_server, ends_when_told_whatever_it_does, .timeout = 120) {
  for (int i = 0; i < 10; ++i) {
    Server server;
    Counters counters;
    const pid_t learner = start_learner(0, 1'000'000, counters);
    cr_assert(eventually([&] { return counters[0] > 10; }));
    kill(learner, SIGKILL);
    cr_expect_eq(exit_code(learner), -1);
    // Somewhere in what it does about that.
    std::this_thread::sleep_for(milliseconds(3 * i));
    kill(server.pid(), SIGTERM);
    cr_assert(eventually([&] { return server.has_ended(); }));
  }
}

namespace {

void expect_that_another_refuses(const std::string& socket) {
  ChildOptions options;
  options.command = {BELLOWS_PS, "--socket=" + socket};
  options.death_signal = SIGKILL;
  auto second = Child::start(options);
  cr_assert(second.ok());
  cr_assert(eventually([&] { return second->poll_exit().has_value(); }), "it takes %s",
            socket.c_str());
  cr_expect(!second->poll_exit()->ok());
}

}  // namespace

Test(ps_server, a_second_one_leaves_the_first_its_socket, .timeout = 60) {
  const Server server;
  expect_that_another_refuses(server.socket());
  const OpenLearner learner;
  cr_expect_eq(learner.code, BELLOWS_PS_OK);
}

Test(ps_server, a_second_one_leaves_the_first_its_socket_where_many_wait, .timeout = 60) {
  allow_many_descriptors();
  const Server server;
  // The socket is there before the process that serves it, and kill(0) would stop this one.
  pid_t worker = 0;
  cr_assert(eventually([&] {
    worker = server.worker();
    return worker != 0;
  }));
  kill(worker, SIGSTOP);
  std::vector<plain::Handle> waiting(3000);
  std::size_t count = 0;
  while (count < waiting.size() &&
         plain::connect_to(server.socket().c_str(), &waiting[count], 1) == 0)
    ++count;
  cr_assert_lt(count, waiting.size(), "all have room");
  expect_that_another_refuses(server.socket());
  waiting.clear();
  kill(worker, SIGCONT);
  const OpenLearner learner;
  cr_expect_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
}

Test(ps_server, leaves_files_that_are_no_sockets, .timeout = 60) {
  const ScratchDir scratch;
  const std::string socket = scratch.path() + "/ps";
  for (const char* const name : {"ps", "ps.new"}) {
    const std::string path = scratch.path() + "/" + name;
    std::ofstream(path) << "data";
    expect_that_another_refuses(socket);
    std::string left;
    std::ifstream(path) >> left;
    cr_expect_eq(left, "data", "%s has gone", name);
    std::filesystem::remove(path);
  }
}

Test(ps_server, leaves_another_its_socket_when_it_ends, .timeout = 60) {
  Server server;
  ChildOptions options;
  options.command = {BELLOWS_PS, "--socket=" + server.socket()};
  options.death_signal = SIGKILL;
  std::filesystem::remove(server.socket());
  auto other = Child::start(options);
  cr_assert(other.ok());
  cr_assert(eventually([&] { return std::filesystem::exists(server.socket()); }));
  server.signal(SIGTERM);
  cr_assert_neq(server.wait_for_end(), -1);
  const OpenLearner learner;
  cr_expect_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
}

Test(ps_server, a_learner_that_became_another_program_gives_its_place_back, .timeout = 60) {
  const Server server({"--learners=1"});
  Counters joined, goes;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const OpenLearner learner;
    joined[0] = learner.code == BELLOWS_PS_OK;
    while (goes[0] == 0) std::this_thread::sleep_for(milliseconds(1));
    execl("/bin/sleep", "sleep", "50", nullptr);
    _exit(1);
  }
  cr_assert(eventually([&] { return joined[0] == 1; }));
  cr_expect_eq(OpenLearner().code, BELLOWS_PS_ERR_FULL);
  goes[0] = 1;
  cr_expect(eventually([] { return OpenLearner().code == BELLOWS_PS_OK; }));
  kill(child, SIGKILL);
  cr_expect_eq(exit_code(child), -1);
}
