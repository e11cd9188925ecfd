// SPDX-License-Identifier: Apache-2.0
// Agents in job mode on threads of the test, which is the launcher and the ranks too.
#include <criterion/criterion.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <filesystem>
#include <random>

#include "checkpoint/include/bellows.h"
#include "checkpoint/protocol/coordinator.h"
#include "checkpoint/protocol/protocol.h"
#include "tests/unit/checkpoint/agent_support.h"
#include "tests/unit/checkpoint/checkpoint_support.h"
#include "tests/unit/checkpoint/job_agent_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

/// One agent in job mode, in a process of its own.
class JobAgentProcess : public AgentPipes {
 public:
  explicit JobAgentProcess(const std::string& dir) {
    pid_ = start_agent("n1", dir + "/n1");
    cr_assert(await<event::Hello>().has_value());
  }
  ~JobAgentProcess() {
    to_.reset();
    waitpid(pid_, nullptr, 0);
  }
  void limit_descriptors(rlim_t most) const {
    rlimit limit;
    prlimit(pid_, RLIMIT_NOFILE, nullptr, &limit);
    limit.rlim_cur = std::min(most, limit.rlim_max);
    prlimit(pid_, RLIMIT_NOFILE, &limit, nullptr);
  }
  /// Bytes of the largest memory it shares with a rank.
  std::uintmax_t largest_memory() const {
    std::uintmax_t most = 0;
    std::error_code gone;
    const std::string fds = "/proc/" + std::to_string(pid_) + "/fd";
    for (const auto& entry : std::filesystem::directory_iterator(fds, gone)) {
      if (!has(std::filesystem::read_symlink(entry, gone), "memfd:bellows")) continue;
      struct stat s;
      if (stat(entry.path().c_str(), &s) == 0) most = std::max<std::uintmax_t>(most, s.st_size);
    }
    return most;
  }
  /// What it has computed so far.
  double seconds() const {
    clockid_t clock;
    timespec used = {};
    if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &used) != 0) abort();
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
  }

 private:
  pid_t pid_;
};

}  // namespace

Test(job_agent, a_stop_that_a_rank_may_have_passed_is_refused, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  bellows_t* b = join(agent, 0, 1);
  std::uint64_t ahead = 7;
  cr_expect(bellows_stop_ahead(b, &ahead) == 0 && ahead == 7);
  cr_expect(bellows_should_stop(b, 10) == 0);
  agent.tell(command::SetGate{10});
  auto gated = agent.await<event::Gated>();
  cr_assert(gated && gated->max_step == 10u);
  agent.tell(command::SetStop{10});
  auto refused = agent.await<event::CommandFailed>();
  cr_expect(refused && refused->cmd == "stop");
  agent.tell(command::SetGate{12});
  agent.tell(command::SetStop{12});
  cr_assert(agent.await<event::StopSet>().has_value());
  cr_expect(bellows_stop_ahead(b, &ahead) == 1 && ahead == 12);
  cr_expect(bellows_should_stop(b, 11) == 0);
  cr_expect(bellows_should_stop(b, 12) == 1);
  cr_expect(bellows_stop_ahead(b, nullptr) == BELLOWS_ERR_INVALID);
  agent.end();
  cr_expect(bellows_stop_ahead(b, &ahead) == BELLOWS_ERR_AGENT);
  bellows_finalize(b, 0);
}

Test(job_agent, serves_a_whole_job_on_two_nodes, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread n1(scratch.path(), "n1"), n2(scratch.path(), "n2");
  const command::Hello hello = hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}, {"n2", {1}}});
  n1.tell(hello);
  n2.tell(hello);
  n1.tell(command::Find{});
  auto found = n1.await<event::Found>();
  cr_assert(found && !found->step && found->skipped.empty());
  n1.tell(command::Restore{});
  n2.tell(command::Restore{});
  cr_assert(n1.await<event::Ready>().has_value());
  bellows_t* ranks[2] = {join(n1, 0, 2), join(n2, 1, 2)};
  std::vector<float> data[2] = {{1, 2, 3}, {1, 2, 3}};
  for (int r = 0; r < 2; ++r) {
    add_array(ranks[r], &data[r]);
    std::uint64_t step = 99;
    cr_expect(bellows_restore(ranks[r], &step) == BELLOWS_NO_CHECKPOINT && step == 99);
  }
  std::thread saves[2];
  std::atomic<int> rc[2] = {1, 1};
  for (int r = 0; r < 2; ++r) {
    saves[r] = std::thread([&, r] { rc[r] = bellows_save(ranks[r], 40); });
  }
  Coordinator coordinator(2);
  std::string node;
  auto first = n1.await<event::Shard>(&node), second = n2.await<event::Shard>();
  cr_assert(first && second && node == "n1" && second->file.rank == 1);
  cr_expect(coordinator.handle(*first).empty());
  for (const Command& c : coordinator.handle(*second)) {
    n1.tell(c);
    n2.tell(c);
  }
  auto committed = n1.await<event::Committed>();
  cr_assert(committed && committed->step == 40u);
  cr_expect(rc[0] == 1 && rc[1] == 1, "a save returned before it was told of the commit");
  n1.tell(command::Committed{40});
  n2.tell(command::Committed{40});
  for (auto& save : saves) save.join();
  cr_expect(rc[0] == BELLOWS_OK && rc[1] == BELLOWS_OK);
  data[1] = {0, 0, 0};
  std::uint64_t step = 0;
  cr_expect(bellows_restore(ranks[1], &step) == BELLOWS_OK && step == 40 && data[1][2] == 3);
  cr_expect(bellows_finalize(ranks[0], 1) == BELLOWS_OK);
  cr_expect(bellows_finalize(ranks[1], 0) == BELLOWS_OK);
  auto left = n1.await<event::Rank>();
  cr_expect(left && left->state == event::Rank::State::finished);
  cr_expect(n1.end() == 0 && n2.end() == 0);
}

// Else a rank that asks a moment before the commit would get the step before, unlike the others.
Test(job_agent, a_restore_waits_for_what_is_in_flight, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  agent.tell(command::Restore{});
  bellows_t* b = join(agent, 0, 1);
  std::vector<float> data = {1, 2, 3};
  add_array(b, &data);
  cr_assert(bellows_save_async(b, 20) == BELLOWS_OK);
  auto shard = agent.await<event::Shard>();
  cr_assert(shard.has_value());
  std::uint64_t step = 0;
  std::atomic<int> rc = 99;
  std::thread restoring([&] { rc = bellows_restore(b, &step); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  cr_expect(rc == 99, "a restore did not wait for the save in flight");
  command::Commit commit{20};
  commit.shards = {shard->file};
  agent.tell(commit);
  cr_assert(agent.await<event::Committed>().has_value());
  agent.tell(command::Committed{20});
  restoring.join();
  cr_expect(rc == BELLOWS_OK && step == 20, "%d, step %lu", rc.load(), step);
  bellows_finalize(b, 1);
}

Test(job_agent, a_gate_without_a_decision_opens_again, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1", 50);
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  bellows_t* b = join(agent, 0, 1);
  agent.tell(command::SetGate{10});
  cr_assert(agent.await<event::Gated>().has_value());
  cr_expect(bellows_should_stop(b, 9) == 0);
  cr_expect(bellows_should_stop(b, 10) == 0);
  auto opened = agent.await<event::CommandFailed>();
  cr_expect(opened && opened->cmd == "gate");
  // A decision that comes too late is refused: this rank has gone on.
  agent.tell(command::SetStop{10});
  auto refused = agent.await<event::CommandFailed>();
  cr_expect(refused && refused->cmd == "stop");
  cr_expect(bellows_should_stop(b, 11) == 0);
  bellows_finalize(b, 1);
}

// The listener stays readable, which is no work.
Test(job_agent, without_descriptors_it_waits_for_some, .timeout = 60) {
  ScratchDir scratch;
  JobAgentProcess agent(scratch.path());
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  agent.limit_descriptors(60);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, (scratch.path() + "/n1").c_str());
  std::vector<Fd> others;
  for (int i = 0; i < 100; ++i) {
    others.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto* to = reinterpret_cast<const sockaddr*>(&address);
    cr_assert(connect(others.back().get(), to, sizeof address) == 0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const double before = agent.seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  cr_expect(agent.seconds() - before < 0.1, "%.2f s computed", agent.seconds() - before);
  agent.limit_descriptors(1000);
  bellows_config config = BELLOWS_CONFIG_INIT;
  bellows_t* b = nullptr;
  cr_expect(bellows_init(&config, &b) == BELLOWS_OK, "%s", bellows_error(b));
  bellows_finalize(b, 1);
}

// As the Python package does, which restores a few bytes first.
Test(job_agent, the_first_buffer_is_made_as_large_as_was_asked_last, .timeout = 60) {
  ScratchDir scratch;
  JobAgentProcess agent(scratch.path());
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  agent.tell(command::Restore{});
  bellows_config config = BELLOWS_CONFIG_INIT;
  bellows_t* b = nullptr;
  cr_assert(bellows_init(&config, &b) == BELLOWS_OK, "%s", bellows_error(b));
  std::uint64_t step = 0;
  std::vector<float> data(1);
  for (const std::size_t count : {1u, 1u << 16, 1u << 20}) {
    data.resize(count);
    add_array(b, &data);
    cr_assert(bellows_restore(b, &step) == BELLOWS_NO_CHECKPOINT);
    cr_expect(eventually([&] { return agent.largest_memory() == std::max(4 * count, 4096ul); }),
              "%zu floats: %lu bytes", count, agent.largest_memory());
  }
  cr_expect(bellows_finalize(b, 1) == BELLOWS_OK);
}

// A program would take the directory from it.
Test(job_agent, keeps_programs_outside_the_job_away, .timeout = 60) {
  ScratchDir scratch;
  const std::string dir = scratch.path() + "/ck";
  std::filesystem::create_directory(dir);
  const auto is_held = [&] { return !hold_store(dir).ok(); };
  {
    JobAgentThread agent(scratch.path(), "n1");
    cr_expect(!is_held());
    for (int attempt = 1; attempt <= 2; ++attempt) {
      agent.tell(hello_for(dir, attempt, {{"n1", {0}}}));
      agent.tell(command::Find{});
      cr_assert(agent.await<event::Found>().has_value());
      cr_expect(is_held());
    }
    // As when another node begins while this one is only cut off.
    FileOps ops;
    StoreWriter next(ops, dir, "7.1.1", Retention{2});
    cr_expect(next.take_ownership().ok());
  }
  cr_expect(!is_held());
}

// The time has passed, and nobody has looked at the clock: as after a suspension.
Test(job_agent, a_stop_that_comes_after_the_limit_is_refused, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1", 1);
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  bellows_t* b = join(agent, 0, 1);
  for (std::uint64_t step = 10; step < 60; step += 10) {
    agent.tell(command::SetGate{step});
    cr_assert(agent.await<event::Gated>().has_value());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    agent.tell(command::SetStop{step});
    auto refused = agent.await<event::CommandFailed>();
    cr_assert(refused && refused->cmd == "gate", "step %lu: the stop is set", step);
    refused = agent.await<event::CommandFailed>();
    cr_assert(refused && refused->cmd == "stop");
  }
  bellows_finalize(b, 1);
}

Test(job_agent, a_new_attempt_drops_the_old_ranks, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  bellows_t* old = join(agent, 0, 1);
  agent.tell(hello_for(scratch.path() + "/ck", 2, {{"n1", {0, 1}}}));
  agent.tell(command::Restore{});
  cr_assert(agent.await<event::Ready>().has_value());
  bellows_t* fresh = join(agent, 0, 2);
  cr_expect(bellows_save(old, 1) == BELLOWS_ERR_AGENT);
  std::uint64_t step = 0;
  cr_expect(bellows_restore(fresh, &step) == BELLOWS_NO_CHECKPOINT);
  bellows_finalize(old, 0);
  bellows_finalize(fresh, 0);
}

// A rank of the old attempt that only now comes to its agent, which has gone on to the next.
Test(job_agent, refuses_a_rank_that_an_earlier_attempt_left, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 2, {{"n1", {0}}}));
  setenv("BELLOWS_SOCKET", agent.socket().c_str(), 1);
  bellows_config config = BELLOWS_CONFIG_INIT;
  config.rank = 0;
  config.world = 1;
  bellows_t* b = nullptr;
  setenv("BELLOWS_ATTEMPT", "7.0.1", 1);
  cr_expect(bellows_init(&config, &b) == BELLOWS_ERR_FENCED);
  cr_expect(has(bellows_error(b), "of attempt 7.0.1, the job is at 7.0.2"), "%s", bellows_error(b));
  bellows_finalize(b, 0);
  setenv("BELLOWS_ATTEMPT", "7.0.2", 1);
  cr_expect(bellows_init(&config, &b) == BELLOWS_OK, "%s", bellows_error(b));
  bellows_finalize(b, 0);
  unsetenv("BELLOWS_ATTEMPT");
  cr_expect(bellows_init(&config, &b) == BELLOWS_ERR_INVALID, "it might be of any attempt");
  cr_expect(has(bellows_error(b), "BELLOWS_ATTEMPT is not"), "%s", bellows_error(b));
  bellows_finalize(b, 0);
}

Test(job_agent, nonsense_lines_are_answered_and_survived, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell_line("{\"cmd\":\"find\"}");
  auto early = agent.next();
  cr_assert(early.has_value());
  const auto* refused = std::get_if<event::CommandFailed>(&early->body);
  cr_expect(refused && has(refused->error.text, "hello"));
  agent.tell_line("\x01 nonsense");
  auto bad = agent.next();
  cr_expect(bad && std::holds_alternative<event::CommandFailed>(bad->body));
  agent.tell(Command{command::Query{}, "n2"});
  agent.tell(command::Quit{});
  cr_expect(agent.end() == 0);
}

// Every rank must come to the same step, whenever the decision falls.
Test(gate, racing_ranks_all_stop_at_the_same_step, .timeout = 240) {
  constexpr int kRanks = 4;
  ScratchDir scratch;
  JobAgentThread n1(scratch.path(), "n1"), n2(scratch.path(), "n2");
  std::mt19937 random(12345);
  for (int round = 0; round < 200; ++round) {
    const command::Hello hello =
        hello_for(scratch.path() + "/ck", round, {{"n1", {0, 1}}, {"n2", {2, 3}}});
    n1.tell(hello);
    n2.tell(hello);
    // Only then has the new attempt begun: a rank that joins before would be dropped.
    n1.tell(command::Restore{});
    n2.tell(command::Restore{});
    cr_assert(n1.await<event::Ready>() && n2.await<event::Ready>());
    bellows_t* ranks[kRanks];
    for (int r = 0; r < kRanks; ++r) ranks[r] = join(r < 2 ? n1 : n2, r, kRanks);
    const std::uint64_t stride = round % 3 == 0 ? 7 : 1;
    std::uint64_t stopped_at[kRanks] = {};
    std::atomic<std::uint64_t> slowest{0};
    std::thread threads[kRanks];
    for (int r = 0; r < kRanks; ++r) {
      threads[r] = std::thread([&, r, seed = random()] {
        std::mt19937 mine(seed);
        for (std::uint64_t step = 0; step < 100000000; step += stride) {
          const int stop = bellows_should_stop(ranks[r], step);
          if (stop != 0) {
            stopped_at[r] = stop == 1 ? step : UINT64_MAX;
            return;
          }
          for (std::uint32_t spin = mine() % 64; spin > 0; --spin) slowest.fetch_add(1);
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
    StopDecision decision(2, random() % 50, random() % 4);
    const command::SetGate gate = decision.begin();
    n1.tell(gate);
    n2.tell(gate);
    while (!decision.step()) {
      auto first = n1.await<event::Gated>(), second = n2.await<event::Gated>();
      cr_assert(first && second);
      std::vector<Command> next = decision.handle("n1", *first);
      for (Command& c : decision.handle("n2", *second)) next.push_back(c);
      for (const Command& c : next) {
        n1.tell(c);
        n2.tell(c);
      }
    }
    for (auto& thread : threads) thread.join();
    for (int r = 0; r < kRanks; ++r) {
      cr_expect(stopped_at[r] == stopped_at[0] && stopped_at[r] >= *decision.step() &&
                    stopped_at[r] < *decision.step() + stride,
                "round %d: rank %d stops at %lu, rank 0 at %lu, decided %lu", round, r,
                stopped_at[r], stopped_at[0], *decision.step());
      bellows_finalize(ranks[r], 0);
    }
  }
}

// The launcher starts the ranks again, but the agent must be able to offer another step too.
Test(job_agent, a_rank_whose_step_is_damaged_is_told_nothing_until_there_is_another,
     .timeout = 60) {
  ScratchDir scratch;
  const std::string dir = scratch.path() + "/ck";
  FileOps ops;
  StoreWriter writer(ops, dir, "7.0.0", Retention{3});
  cr_assert(writer.take_ownership() && save_step(writer, ops, 10) && save_step(writer, ops, 20));
  const std::string file = step_path(dir, 20) + "/shard-00001-of-00002.h5";
  flip_byte(file, static_cast<std::int64_t>(std::filesystem::file_size(file)) - 1);
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(dir, 1, {{"n1", {0}}}));
  command::Find find;
  agent.tell(find);
  auto found = agent.await<event::Found>();
  cr_assert(found && found->step == 20u && found->skipped.empty());
  agent.tell(command::Restore{20});
  bellows_t* b = join(agent, 0, 1);
  std::vector<float> data(10);
  const std::uint64_t shape[] = {10};
  cr_assert(bellows_register(b, "x", BELLOWS_F32, 1, shape, BELLOWS_SHARDED, 0, 10, data.data()) ==
            BELLOWS_OK);
  std::atomic<int> rc{99};
  std::uint64_t step = 0;
  std::thread rank([&] { rc = bellows_restore(b, &step); });
  auto bad = agent.await<event::RestoreError>();
  cr_assert(bad && bad->step == 20u && bad->rank == 0 && has(bad->error.text, file));
  cr_expect(rc == 99, "the rank was told");
  find.search.bad = {{20, bad->error.text}};
  agent.tell(find);
  found = agent.await<event::Found>();
  cr_assert(found && found->step == 10u && found->skipped.size() == 1);
  agent.tell(command::Restore{10});
  rank.join();
  cr_expect(rc == BELLOWS_OK && step == 10 && data[0] == 10 && data[9] == 19);
  bellows_finalize(b, 1);
}
