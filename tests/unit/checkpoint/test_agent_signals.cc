// SPDX-License-Identifier: Apache-2.0
// What agents in job mode and their ranks make of Slurm's signals, and of one another's ends.
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/client/handle.h"
#include "checkpoint/include/bellows.h"
#include "checkpoint/protocol/protocol.h"
#include "tests/unit/checkpoint/agent_support.h"
#include "tests/unit/checkpoint/checkpoint_support.h"
#include "tests/unit/checkpoint/job_agent_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

Test(job_agent, a_dead_launcher_fails_the_ranks_that_wait, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0, 1}}}));
  bellows_t* saver = join(agent, 0, 2);
  bellows_t* waiter = join(agent, 1, 2);
  std::vector<float> data(3);
  add_array(saver, &data);
  command::SetGate gate{0};
  agent.tell(gate);
  cr_assert(agent.await<event::Gated>().has_value());
  int save_rc = 0, stop_rc = 0;
  std::thread saving([&] { save_rc = bellows_save(saver, 1); });
  std::thread waiting([&] { stop_rc = bellows_should_stop(waiter, 5); });
  cr_assert(agent.await<event::Shard>().has_value());
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
  auto shard = agent.await<event::Shard>();
  cr_assert(shard.has_value());
  // Longer than an agent without ranks stays.
  std::this_thread::sleep_for(std::chrono::seconds(4));
  command::Commit commit{1};
  commit.shards = {shard->file};
  agent.tell(commit);
  cr_assert(agent.await<event::Committed>().has_value());
  agent.tell(command::Committed{1});
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
  std::string node;
  auto said = agent.await<event::Progress>(&node);
  cr_expect(said && said->signal == event::Progress::Signal::usr1 && node == "n1");
  raise(SIGTERM);
  said = agent.await<event::Progress>();
  cr_expect(said && said->signal == event::Progress::Signal::term);
}

// A rank of the same step looks only for a moment whether its agent was told, too.
Test(job_agent, says_each_signal_at_once, .timeout = 60) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  agent.tell(command::Restore{});
  cr_assert(agent.await<event::Ready>().has_value());
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < 5; ++round) {
    // As the signals come to this thread, they interrupt no call of the agent's.
    raise(SIGTERM);
    raise(SIGUSR1);
    std::set<event::Progress::Signal> said;
    while (said.size() < 2) {
      auto event = agent.await<event::Progress>();
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
  cr_assert(agent.await<event::Progress>().has_value());
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
  auto joined = agent.await<event::Rank>();
  if (agent_too) raise(number);
  int status = 0;
  waitpid(rank, &status, 0);
  auto left = agent.await<event::Rank>();
  cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == number);
  return joined && left && left->state == event::Rank::State::lost;
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
  cr_assert(agent.await<event::Rank>().has_value());
  raise(SIGTERM);
  usleep(700000);
  int status = 0;
  cr_expect(waitpid(rank, &status, WNOHANG) == 0, "it waits for a stop");
  agent.tell(command::Quit{});
  const auto begin = std::chrono::steady_clock::now();
  waitpid(rank, &status, 0);
  cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  cr_expect(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(2000));
}

Test(job_agent, its_ranks_outlive_what_slurm_tells_all_steps, .timeout = 60) {
  cr_expect(!rank_after_a_signal(SIGTERM, true));
  cr_expect(!rank_after_a_signal(SIGUSR1, true));
}

// What its agent says of a rank that joins and does this.
event::Rank::State state_after(const std::function<void()>& end) {
  ScratchDir scratch;
  JobAgentThread agent(scratch.path(), "n1");
  agent.tell(hello_for(scratch.path() + "/ck", 1, {{"n1", {0}}}));
  const pid_t rank = fork();
  if (rank == 0) {
    // Behind what joining adds, and before what is the test's.
    on_exit([](int status, void*) { _exit(status); }, nullptr);
    join(agent, 0, 1);
    end();
  }
  cr_assert(agent.await<event::Rank>().has_value());
  auto left = agent.await<event::Rank>();
  waitpid(rank, nullptr, 0);
  cr_assert(left.has_value());
  return left->state;
}

// A command such as "./train | tee log" gives no status of the rank's own.
Test(job_agent, tells_ranks_that_end_by_themselves_from_dead_ones, .timeout = 60) {
  cr_expect(state_after([] { exit(0); }) == event::Rank::State::exited);
  cr_expect(state_after([] { exit(3); }) == event::Rank::State::lost);
  cr_expect(state_after([] { raise(SIGKILL); }) == event::Rank::State::lost);
  cr_expect(state_after([] {
              const pid_t child = fork();
              if (child == 0) exit(0);
              waitpid(child, nullptr, 0);
              raise(SIGKILL);
            }) == event::Rank::State::lost,
            "a child's end is not the rank's");
}

Test(job_agent, its_ranks_die_of_a_signal_to_them_alone, .timeout = 60) {
  cr_expect(rank_after_a_signal(SIGTERM, false));
  cr_expect(rank_after_a_signal(SIGUSR1, false));
}
