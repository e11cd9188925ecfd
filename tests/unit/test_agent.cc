// SPDX-License-Identifier: Apache-2.0
// Agents in job mode on threads of the test, which is the launcher and the ranks too.
#include <criterion/criterion.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <set>

#include "checkpoint/agent.h"
#include "checkpoint/bellows.h"
#include "checkpoint/client_handle.h"
#include "checkpoint/coordinator.h"
#include "checkpoint/protocol.h"
#include "tests/unit/agent_support.h"
#include "tests/unit/checkpoint_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

/// One agent in job mode, on a thread, and the launcher's ends of its pipes.
class JobAgentThread : public AgentPipes {
 public:
  JobAgentThread(const std::string& dir, const std::string& node, int gate_limit_ms = 60000) {
    open_pipes(&options_);
    options_.node = node;
    options_.socket_path = dir + "/" + node;
    options_.gate_limit_ms = gate_limit_ms;
    thread_ = std::thread([this] { exit_ = agent_main(options_); });
    cr_assert(await(Event::Kind::hello).has_value());
  }
  ~JobAgentThread() {
    end();
    close(options_.in_fd);
    close(options_.out_fd);
  }
  /// The launcher dies.
  int end() {
    to_.reset();
    if (thread_.joinable()) thread_.join();
    return exit_;
  }
  /// Without the launcher's end of file.
  int ends_alone() {
    thread_.join();
    return exit_;
  }
  const std::string& socket() const { return options_.socket_path; }

 private:
  AgentOptions options_;
  std::thread thread_;
  int exit_ = -1;
};

bellows_t* join(const JobAgentThread& agent, int rank, int world) {
  setenv("BELLOWS_SOCKET", agent.socket().c_str(), 1);
  bellows_config config = BELLOWS_CONFIG_INIT;
  config.rank = rank;
  config.world = world;
  bellows_t* b = nullptr;
  const int rc = bellows_init(&config, &b);
  cr_assert(rc == BELLOWS_OK, "rank %d: %s", rank, bellows_error(b));
  return b;
}

void add_array(bellows_t* b, std::vector<float>* data) {
  const std::uint64_t shape[] = {data->size()};
  cr_assert(bellows_register(b, "x", BELLOWS_F32, 1, shape, BELLOWS_REPLICATED, 0, 0,
                             data->data()) == BELLOWS_OK);
}

}  // namespace

Test(job_agent, a_stop_that_a_rank_may_have_passed_is_refused, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  bellows_t* b = join(agent, 0, 1);
  cr_expect(bellows_should_stop(b, 10) == 0);
  agent.tell(command_of(Command::Kind::gate, 10));
  auto gated = agent.await(Event::Kind::gated);
  cr_assert(gated && gated->max_step == 10u);
  agent.tell(command_of(Command::Kind::stop, 10));
  auto refused = agent.await(Event::Kind::error);
  cr_expect(refused && refused->cmd == "stop");
  agent.tell(command_of(Command::Kind::gate, 12));
  agent.tell(command_of(Command::Kind::stop, 12));
  cr_assert(agent.await(Event::Kind::stop_set).has_value());
  cr_expect(bellows_should_stop(b, 11) == 0);
  cr_expect(bellows_should_stop(b, 12) == 1);
  bellows_finalize(b, 0);
}

Test(job_agent, serves_a_whole_job_on_two_nodes, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread n1(scratch.path(), "n1"), n2(scratch.path(), "n2");
  const Command hello = hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}, {"n2", {1}}});
  n1.tell(hello);
  n2.tell(hello);
  n1.tell(command_of(Command::Kind::find));
  auto found = n1.await(Event::Kind::found);
  cr_assert(found && !found->step && found->skipped.empty());
  n1.tell(command_of(Command::Kind::restore));
  n2.tell(command_of(Command::Kind::restore));
  cr_assert(n1.await(Event::Kind::ready).has_value());
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
  auto first = n1.await(Event::Kind::shard), second = n2.await(Event::Kind::shard);
  cr_assert(first && second && first->node == "n1" && second->rank == 1);
  cr_expect(coordinator.handle(*first).empty());
  for (const Command& c : coordinator.handle(*second)) {
    n1.tell(c);
    n2.tell(c);
  }
  auto committed = n1.await(Event::Kind::committed);
  cr_assert(committed && committed->step == 40u);
  cr_expect(rc[0] == 1 && rc[1] == 1, "a save returned before it was told of the commit");
  n1.tell(command_of(Command::Kind::committed, 40));
  n2.tell(command_of(Command::Kind::committed, 40));
  for (auto& save : saves) save.join();
  cr_expect(rc[0] == BELLOWS_OK && rc[1] == BELLOWS_OK);
  data[1] = {0, 0, 0};
  std::uint64_t step = 0;
  cr_expect(bellows_restore(ranks[1], &step) == BELLOWS_OK && step == 40 && data[1][2] == 3);
  cr_expect(bellows_finalize(ranks[0], 1) == BELLOWS_OK);
  cr_expect(bellows_finalize(ranks[1], 0) == BELLOWS_OK);
  auto left = n1.await(Event::Kind::rank);
  cr_expect(left && left->state == "finished");
  cr_expect(n1.end() == 0 && n2.end() == 0);
}

// Else a rank that asks a moment before the commit would get the step before, unlike the others.
Test(job_agent, a_restore_waits_for_what_is_in_flight, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  agent.tell(command_of(Command::Kind::restore));
  bellows_t* b = join(agent, 0, 1);
  std::vector<float> data = {1, 2, 3};
  add_array(b, &data);
  cr_assert(bellows_save_async(b, 20) == BELLOWS_OK);
  auto shard = agent.await(Event::Kind::shard);
  cr_assert(shard.has_value());
  std::uint64_t step = 0;
  std::atomic<int> rc = 99;
  std::thread restoring([&] { rc = bellows_restore(b, &step); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  cr_expect(rc == 99, "a restore did not wait for the save in flight");
  Command commit = command_of(Command::Kind::commit, 20);
  commit.shards = {shard->shard};
  agent.tell(commit);
  cr_assert(agent.await(Event::Kind::committed).has_value());
  agent.tell(command_of(Command::Kind::committed, 20));
  restoring.join();
  cr_expect(rc == BELLOWS_OK && step == 20, "%d, step %lu", rc.load(), step);
  bellows_finalize(b, 1);
}

Test(job_agent, a_dead_launcher_fails_the_ranks_that_wait, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0, 1}}}));
  bellows_t* saver = join(agent, 0, 2);
  bellows_t* waiter = join(agent, 1, 2);
  std::vector<float> data(3);
  add_array(saver, &data);
  Command gate = command_of(Command::Kind::gate, 0);
  agent.tell(gate);
  cr_assert(agent.await(Event::Kind::gated).has_value());
  int save_rc = 0, stop_rc = 0;
  std::thread saving([&] { save_rc = bellows_save(saver, 1); });
  std::thread waiting([&] { stop_rc = bellows_should_stop(waiter, 5); });
  cr_assert(agent.await(Event::Kind::shard).has_value());
  cr_expect(agent.end() == 0);
  saving.join();
  waiting.join();
  cr_expect(save_rc == BELLOWS_ERR_AGENT && has(bellows_error(saver), "lost the checkpoint agent"));
  cr_expect(stop_rc == BELLOWS_ERR_AGENT);
  cr_expect(bellows_save(saver, 2) == BELLOWS_ERR_AGENT);
  bellows_finalize(saver, 0);
  bellows_finalize(waiter, 0);
}

// As when the node of the launcher is lost: no end of file comes, and Slurm waits for the step.
Test(job_agent, after_a_sigterm_it_stays_for_its_ranks_only, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  bellows_t* b = join(agent, 0, 1);
  raise(SIGTERM);
  std::vector<float> data(3);
  add_array(b, &data);
  std::thread saving([&] { cr_expect(bellows_save(b, 1) == BELLOWS_OK); });
  auto shard = agent.await(Event::Kind::shard);
  cr_assert(shard.has_value());
  // Longer than an agent without ranks stays.
  std::this_thread::sleep_for(std::chrono::seconds(4));
  Command commit = command_of(Command::Kind::commit, 1);
  commit.shards = {shard->shard};
  agent.tell(commit);
  cr_assert(agent.await(Event::Kind::committed).has_value());
  agent.tell(command_of(Command::Kind::committed, 1));
  saving.join();
  bellows_finalize(b, 0);
  cr_expect(agent.ends_alone() == 0);
}

// Slurm signals steps only, and the launcher is none.
Test(job_agent, passes_on_what_slurm_announces, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  raise(SIGUSR1);
  auto said = agent.await(Event::Kind::progress);
  cr_expect(said && said->signal == "USR1" && said->node == "n1");
  raise(SIGTERM);
  said = agent.await(Event::Kind::progress);
  cr_expect(said && said->signal == "TERM");
}

// A rank of the same step looks only for a moment whether its agent was told, too.
Test(job_agent, says_each_signal_at_once, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  agent.tell(command_of(Command::Kind::restore));
  cr_assert(agent.await(Event::Kind::ready).has_value());
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < 5; ++round) {
    // As the signals come to this thread, they interrupt no call of the agent's.
    raise(SIGTERM);
    raise(SIGUSR1);
    std::set<std::string> said;
    while (said.size() < 2) {
      auto event = agent.await(Event::Kind::progress);
      cr_assert(event.has_value(), "a signal was not said");
      said.insert(event->signal);
    }
  }
  // It would take a second for each otherwise.
  cr_expect(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(2500));
}

// A rank that joins just after it got the signal that its agent got.
Test(job_agent, what_slurm_announced_counts_for_a_rank_that_comes_late, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  raise(SIGUSR1);
  cr_assert(agent.await(Event::Kind::progress).has_value());
  bellows_t* b = join(agent, 0, 1);
  cr_expect(b->page()->announced.load() == 1);
  bellows_finalize(b, 0);
}

// A rank that does nothing about such signals itself. Slurm has told it; `agent_too`: and its
// agent.
int rank_after_a_signal(int number, bool agent_too) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  const pid_t rank = fork();
  if (rank == 0) {
    for (int each : {SIGTERM, SIGUSR1}) signal(each, SIG_DFL);
    bellows_t* b = join(agent, 0, 1);
    raise(number);
    for (int i = 0; i < 20; ++i) usleep(100000);
    bellows_finalize(b, 0);
    // Now it does what it did before.
    raise(number);
    _exit(1);
  }
  auto joined = agent.await(Event::Kind::rank);
  if (agent_too) raise(number);
  int status = 0;
  waitpid(rank, &status, 0);
  auto left = agent.await(Event::Kind::rank);
  cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == number);
  return joined && left && left->state == "lost";
}

// srun takes all agents down when one has died; ranks that it takes down too are waited for.
Test(job_agent, its_ranks_see_soon_that_it_has_gone, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  const pid_t rank = fork();
  if (rank == 0) {
    signal(SIGTERM, SIG_DFL);
    bellows_t* b = join(agent, 0, 1);
    raise(SIGTERM);
    for (int i = 0; i < 200; ++i) usleep(100000);
    _exit(b == nullptr);
  }
  cr_assert(agent.await(Event::Kind::rank).has_value());
  raise(SIGTERM);
  usleep(700000);
  int status = 0;
  cr_expect(waitpid(rank, &status, WNOHANG) == 0, "it waits for a stop");
  agent.tell(command_of(Command::Kind::quit));
  const auto begin = std::chrono::steady_clock::now();
  waitpid(rank, &status, 0);
  cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  cr_expect(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(2000));
}

Test(job_agent, its_ranks_outlive_what_slurm_tells_all_steps, .timeout = 60) {
  cr_expect(!rank_after_a_signal(SIGTERM, true));
  cr_expect(!rank_after_a_signal(SIGUSR1, true));
}

Test(job_agent, its_ranks_die_of_a_signal_to_them_alone, .timeout = 60) {
  cr_expect(rank_after_a_signal(SIGTERM, false));
  cr_expect(rank_after_a_signal(SIGUSR1, false));
}

Test(job_agent, a_gate_without_a_decision_opens_again, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1", 50);
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  bellows_t* b = join(agent, 0, 1);
  agent.tell(command_of(Command::Kind::gate, 10));
  cr_assert(agent.await(Event::Kind::gated).has_value());
  cr_expect(bellows_should_stop(b, 9) == 0);
  cr_expect(bellows_should_stop(b, 10) == 0);
  auto opened = agent.await(Event::Kind::error);
  cr_expect(opened && opened->cmd == "gate");
  // A decision that comes too late is refused: this rank has gone on.
  agent.tell(command_of(Command::Kind::stop, 10));
  auto refused = agent.await(Event::Kind::error);
  cr_expect(refused && refused->cmd == "stop");
  cr_expect(bellows_should_stop(b, 11) == 0);
  bellows_finalize(b, 1);
}

Test(job_agent, a_new_attempt_drops_the_old_ranks, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  bellows_t* old = join(agent, 0, 1);
  agent.tell(hello_for(scratch.path() + "/ck", 2, {{"n1", {0, 1}}}));
  agent.tell(command_of(Command::Kind::restore));
  cr_assert(agent.await(Event::Kind::ready).has_value());
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
  cr_expect(early && early->kind == Event::Kind::error && has(early->error, "hello"));
  agent.tell_line("\x01 nonsense");
  auto bad = agent.next();
  cr_expect(bad && bad->kind == Event::Kind::error);
  Command other = command_of(Command::Kind::query);
  other.node = "n2";
  agent.tell(other);
  agent.tell(command_of(Command::Kind::quit));
  cr_expect(agent.end() == 0);
}

// Every rank must come to the same step, whenever the decision falls.
Test(gate, racing_ranks_all_stop_at_the_same_step, .timeout = 240) {
  constexpr int kRanks = 4;
  ScratchDir scratch;
  JobAgentThread n1(scratch.path(), "n1"), n2(scratch.path(), "n2");
  std::mt19937 random(12345);
  for (int round = 0; round < 200; ++round) {
    const Command hello =
        hello_for(scratch.path() + "/ck", round, {{"n1", {0, 1}}, {"n2", {2, 3}}});
    n1.tell(hello);
    n2.tell(hello);
    // Only then has the new attempt begun: a rank that joins before would be dropped.
    n1.tell(command_of(Command::Kind::restore));
    n2.tell(command_of(Command::Kind::restore));
    cr_assert(n1.await(Event::Kind::ready) && n2.await(Event::Kind::ready));
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
    Command gate = decision.begin();
    n1.tell(gate);
    n2.tell(gate);
    while (!decision.step()) {
      auto first = n1.await(Event::Kind::gated), second = n2.await(Event::Kind::gated);
      cr_assert(first && second);
      std::vector<Command> next = decision.handle(*first);
      for (Command& c : decision.handle(*second)) next.push_back(c);
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
Test(job_agent, a_rank_whose_step_is_damaged_hears_nothing_until_there_is_another, .timeout = 60) {
  ScratchDir scratch;
  const std::string dir = scratch.path() + "/ck";
  FileOps ops;
  StoreWriter writer(ops, dir, "7.0.0", Retention{3});
  cr_assert(writer.take_ownership() && save_step(writer, ops, 10) && save_step(writer, ops, 20));
  const std::string file = step_path(dir, 20) + "/shard-00001-of-00002.h5";
  flip_byte(file, static_cast<std::int64_t>(std::filesystem::file_size(file)) - 1);
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(dir, 1, {{"n1", {0}}}));
  Command find = command_of(Command::Kind::find);
  agent.tell(find);
  auto found = agent.await(Event::Kind::found);
  cr_assert(found && found->step == 20u && found->skipped.empty());
  agent.tell(command_of(Command::Kind::restore, 20));
  bellows_t* b = join(agent, 0, 1);
  std::vector<float> data(10);
  const std::uint64_t shape[] = {10};
  cr_assert(bellows_register(b, "x", BELLOWS_F32, 1, shape, BELLOWS_SHARDED, 0, 10, data.data()) ==
            BELLOWS_OK);
  std::atomic<int> rc{99};
  std::uint64_t step = 0;
  std::thread rank([&] { rc = bellows_restore(b, &step); });
  auto bad = agent.await(Event::Kind::restore_error);
  cr_assert(bad && bad->step == 20u && bad->rank == 0 && has(bad->error, file));
  cr_expect(rc == 99, "the rank was told");
  find.search.bad = {{20, bad->error}};
  agent.tell(find);
  found = agent.await(Event::Kind::found);
  cr_assert(found && found->step == 10u && found->skipped.size() == 1);
  agent.tell(command_of(Command::Kind::restore, 10));
  rank.join();
  cr_expect(rc == BELLOWS_OK && step == 10 && data[0] == 10 && data[9] == 19);
  bellows_finalize(b, 1);
}
