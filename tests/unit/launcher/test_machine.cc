// SPDX-License-Identifier: Apache-2.0
// `bellows run` as a machine: each row of the table of failures in bellows-run(1), by the events
// that make it.
#include <criterion/criterion.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/launcher/machine_world.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

enum class Done { starts_in_place, requeues, fails, waits };

struct Row {
  const char* failure;
  std::function<void(MachineWorld&)> happens;  ///< to ranks that run, or to a run that begins
  Done done;
  std::string cause;  ///< part of what the history says of it
  int times = 0;      ///< how often it is started again before it is given up
  int exit = 0;       ///< of the launcher, when it gives up or has requeued the job
  bool begun = true;  ///< ranks are at work before
  std::chrono::milliseconds within = 0ms;  ///< it is noticed no earlier and 2 s later at most
};

Event busy(const std::string& node, bool works) {
  return {event::Progress{.ranks = {0}, .steps = {5}, .busy = works}, node};
}

Event agent_error(ErrorKind kind, const std::string& text) {
  return {event::CommandFailed{.cmd = "restore", .error = {kind, text}}, "n2"};
}

NodeReport report(const std::string& name, const std::string& state) {
  return {name, {state}, {"main"}, 2, 2};
}

void rank_ends_badly(MachineWorld& world) {
  world.feed(input::SrunLine{"srun: error: n2: task 3: Killed"});
  world.ranks_killed(SIGKILL);
}

void ranks_end_with_a_lost_one(MachineWorld& world) {
  world.rank(3, event::Rank::State::lost);
  world.ranks_end(0);
  world.answer_query();
}

void node_is_drained(MachineWorld& world) {
  world.progress(5);
  world.feed(input::Nodes{{report("n1", "ALLOCATED"), report("n2", "DRAIN")}});
  world.feed(input::Nodes{{report("n1", "ALLOCATED"), report("n2", "DRAIN")}});
  world.answer_gate(5);
  world.answer_gate(5);
  world.save(6);
  world.ranks_end(0);
  world.agents_end(0);
}

void is_preempted(MachineWorld& world) {
  world.progress(5);
  world.record.times.preempt = 1000;
  world.feed(input::Term{});
  world.pass(1s);
  world.answer_gate(5);
  world.answer_gate(5);
  world.save(6);
  world.ranks_end(0);
  world.agents_end(0);
}

void comes_near_its_limit(MachineWorld& world) {
  JobLimits limits;
  limits.left = 20;
  limits.total = 600;
  world.feed(input::Limits{limits});
  world.answer_gate(0);
  world.answer_gate(0);
  world.ranks_end(0);
  world.answer_query();
  world.agents_end(0);
  world.pass(20s);
}

void steps_do_not_end(MachineWorld& world) {
  world.lingering = {"bellows-ranks-1"};
  world.agents_end(1);
  for (int i = 0; i < 100; ++i) world.pass(1s);
}

void directory_is_anothers(MachineWorld& world) {
  // It is found at the next start.
  SlurmJob other = MachineWorld::job();
  other.id = 8;
  world.around.owner = {"8.0.100.x.1", RunName{8, 0, 100, "x"}, 1};
  world.around.owner_job = other;
  world.feed(input::AgentsNotStarted{"no srun"});
}

void all_checkpoints_are_damaged(MachineWorld& world) {
  world.agents_greet();
  world.agent({event::Found{.skipped = {{9, "a block is damaged"}}}, "n1"});
  world.agents_end(0);
}

const std::vector<Row>& rows() {
  using D = Done;
  static const std::vector<Row> kRows = {
      {"rank dies", rank_ends_badly, D::starts_in_place, "rank 3 on n2 was killed", 3, 137},
      {"rank dies without a word", ranks_end_with_a_lost_one, D::starts_in_place, "rank 3 on n2", 3,
       1},
      {"rank dies, command lives",
       [](MachineWorld& world) {
         for (std::uint64_t step = 1; step <= 5; ++step) {
           world.pass(1s);
           world.progress(step);
         }
         world.rank(3, event::Rank::State::lost);
       },
       D::starts_in_place, "no progress", 3, 1, true, 30s},
      {"program is missing",
       [](MachineWorld& world) {
         world.start_ranks();
         world.ranks_end(127);
         world.pass(1s);
         world.agents_end(0);
       },
       D::fails, "127", 0, 127, false},
      {"ranks hang", [](MachineWorld& world) { world.progress(5); }, D::starts_in_place,
       "no progress", 3, 1, true, 1800s},
      {"incomplete start",
       [](MachineWorld& world) {
         world.start_ranks();
         world.rank(0, event::Rank::State::joined);
       },
       D::starts_in_place, "3 of 4 ranks did not start", 3, 1, false, 600s},
      {"step not made",
       [](MachineWorld& world) {
         world.steps_are_made = false;
         world.start_ranks();
       },
       D::starts_in_place, "Slurm did not start the step", 10, 0, false, 600s},
      {"agent dies",
       [](MachineWorld& world) {
         world.agent_lost("the agent on n2 was killed");
         world.pass(1s);
         world.agents_end(1);
         world.ranks_end(1);
       },
       D::starts_in_place, "the agent on n2 was killed", 3, 1},
      {"agents do not start", [](MachineWorld&) {}, D::starts_in_place,
       "no answer from the agents on n1,n2", 10, 0, false, 60s},
      {"node lost",
       [](MachineWorld& world) {
         world.record.state = SlurmState::pending;
         world.record.restarts = 1;
         world.agent_lost("node n2 was lost", "n2");
       },
       D::requeues, "node n2 was lost"},
      {"node drained", node_is_drained, D::requeues, "drain of n2"},
      {"steps do not end", steps_do_not_end, D::requeues, "did not end"},
      {"slurmctld is silent",
       [](MachineWorld& world) {
         world.slurm_silent = true;
         rank_ends_badly(world);
       },
       D::waits, ""},
      {"file system fails",
       [](MachineWorld& world) {
         world.agent(agent_error(ErrorKind::io, "No space left on device"));
         world.pass(1s);
         world.ranks_end(1);
       },
       D::starts_in_place, "No space left", 40, 1},
      {"file system hangs",
       [](MachineWorld& world) {
         world.agent(busy("n1", true));
         for (int i = 0; i < 3600; ++i) {
           world.pass(1s);
           world.agent(busy("n1", true));
           world.agent(busy("n2", true));
         }
         cr_expect(world.has_said("training waits for the file system"));
       },
       D::waits, ""},
      {"all checkpoints damaged", all_checkpoints_are_damaged, D::fails, "all 1 are damaged", 0, 1,
       false},
      {"directory of another job", directory_is_anothers, D::fails, "belongs to job 8", 0, 3,
       false},
      {"preemption", is_preempted, D::requeues, "preemption"},
      {"time limit", comes_near_its_limit, D::requeues, "time limit"},
      {"suspension",
       [](MachineWorld& world) {
         world.progress(5);
         world.now += 48h;
         world.feed(input::Paused{48h});
         world.feed(input::Tick{});
       },
       D::waits, ""},
      {"scancel",
       [](MachineWorld& world) {
         world.record.state = SlurmState::cancelled;
         world.feed(input::Term{});
         world.pass(1s);
       },
       D::fails, "scancel", 0, 1},
  };
  return kRows;
}

/// Time goes by, and processes end as they are told to.
void settle(MachineWorld& world, std::chrono::milliseconds time) {
  const auto end = world.now + time;
  do {
    world.pass(100ms);
    const bool clearing = std::holds_alternative<state::Clearing>(world.machine.state());
    const bool draining = std::holds_alternative<state::Draining>(world.machine.state());
    if (clearing && world.ranks_live) world.ranks_killed(SIGTERM);
    if (draining) world.answer_query();
    if (clearing && world.agents && !world.agents_open) world.agents_end(0);
  } while (world.now < end && !world.exit);
}

void run_ranks(MachineWorld& world) {
  world.start_ranks();
  world.join();
}

/// Until the next attempt begins or the run is over.
void settle_until_next(MachineWorld& world) {
  const auto begins = [&world] {
    return std::holds_alternative<state::Greeting>(world.machine.state()) ||
           std::holds_alternative<state::Finding>(world.machine.state());
  };
  for (int i = 0; i < 1000 && !world.exit && !begins(); ++i) settle(world, 1s);
}

bool is_told(const MachineWorld& world, const std::string& cause) {
  for (const JobEvent& event : world.history)
    if (has(event.cause, cause.c_str())) return true;
  return false;
}

void expect_row(const Row& row) {
  MachineWorld world;
  world.begin();
  if (row.begun) run_ranks(world);
  const int before = world.rank_starts, agents_before = world.agent_starts;
  row.happens(world);
  if (row.within > 0ms) {
    settle(world, row.within - 1s);
    cr_expect(!world.machine.run().fault.pending && world.rank_starts <= 1, "%s: too early",
              row.failure);
    settle(world, 2s);
  }
  settle(world, 13s);
  cr_expect(is_told(world, row.cause), "%s: %s", row.failure, world.last().c_str());
  const bool again = world.rank_starts > before + (row.begun ? 0 : 1) ||
                     world.agent_starts > agents_before ||
                     std::holds_alternative<state::Finding>(world.machine.state());
  cr_expect((row.done == Done::starts_in_place) == again, "%s: %d starts, %s", row.failure,
            world.rank_starts, world.last().c_str());
  cr_expect((row.done == Done::requeues) == !world.roads.empty(), "%s", row.failure);
  const bool over = row.done == Done::requeues || row.done == Done::fails;
  cr_expect(world.exit.has_value() == over && (!over || *world.exit == row.exit), "%s: exit %d",
            row.failure, world.exit.value_or(-1));
  cr_expect(world.broken.empty(), "%s: %s", row.failure, world.broken.c_str());
}

}  // namespace

Test(machine, does_what_the_table_of_failures_says) {
  cr_assert(rows().size() == 21, "as bellows-run(1) has");
  for (const Row& row : rows()) expect_row(row);
}

Test(machine, restarts_agents_that_never_answered) {
  MachineWorld world;
  world.begin();
  settle(world, 61s);
  settle_until_next(world);
  cr_expect(world.agent_starts == 2);
  cr_expect(std::holds_alternative<state::Greeting>(world.machine.state()));
}

Test(machine, gives_up_when_the_table_of_failures_says_so) {
  for (const Row& row : rows()) {
    if (row.done != Done::starts_in_place) continue;
    MachineWorld world;
    world.fruitless_runs = 8;
    world.begin();
    int failures = 0;
    for (; failures < 60 && !world.exit; ++failures) {
      if (row.begun) run_ranks(world);
      row.happens(world);
      // A hang that is called for nothing is called later the next time.
      settle(world, row.within * (row.begun ? 1 << failures : 1) + 1s);
      settle_until_next(world);
    }
    cr_expect(failures == row.times + 1, "%s: %d failures", row.failure, failures);
    cr_expect(world.exit == row.exit, "%s: exit %d", row.failure, world.exit.value_or(-1));
    const bool requeued = !world.roads.empty();
    cr_expect(requeued == (row.exit == 0), "%s", row.failure);
    cr_expect(requeued == world.marker, "%s: who gives up must not come back", row.failure);
    cr_expect(world.broken.empty(), "%s: %s", row.failure, world.broken.c_str());
  }
}

Test(machine, ends_a_job_that_the_cluster_fails_run_after_run) {
  MachineWorld world;
  world.fruitless_runs = 9;
  world.begin();
  for (int i = 0; i < 20 && !world.exit; ++i) {
    settle(world, 61s);
    settle_until_next(world);
  }
  cr_expect(world.exit == 1 && world.roads.empty(), "ten such runs");
  cr_expect(has(world.last(), "10 runs in a row without a new checkpoint"));
}

Test(machine, ends_a_job_whose_time_limit_comes_again_without_a_checkpoint) {
  for (const std::uint32_t runs : {2u, 3u}) {
    MachineWorld world;
    world.fruitless_runs = runs;
    world.start();
    comes_near_its_limit(world);
    cr_expect(world.roads.empty() == (runs == 3), "--max-restarts of 3");
    cr_expect(world.exit == (runs == 3 ? 1 : 0));
  }
}

Test(machine, does_not_keep_agents_that_take_no_commands) {
  for (const bool closed : {false, true}) {
    MachineWorld world;
    world.start();
    if (closed) world.feed(input::AgentsClosed{});
    rank_ends_badly(world);
    world.pass(1s);
    world.answer_query();
    world.pass(1s);
    const bool awaits = std::holds_alternative<state::Clearing>(world.machine.state());
    cr_expect(awaits == closed, "their step has to end first");
  }
}

Test(machine, blames_the_storage_for_ranks_that_die_of_a_failed_save) {
  for (const auto after : {29s, 31s}) {
    MachineWorld world;
    world.start();
    const Error full{ErrorKind::io, "shard 0: No space left on device"};
    world.agent({event::SaveError{.step = 5, .error = full}, "n1"});
    world.pass(after);
    rank_ends_badly(world);
    const bool blamed = world.machine.run().fault.blame == Blame::storage;
    cr_expect(blamed == (after == 29s), "%d s", static_cast<int>(after.count()));
  }
}

Test(machine, starts_nothing_in_a_suspended_job) {
  MachineWorld world;
  world.start();
  world.record.state = SlurmState::suspended;
  rank_ends_badly(world);
  world.pass(60s);
  cr_expect(world.rank_starts == 1 && world.machine.run().fault.pending && !world.exit);
  world.record.state = SlurmState::running;
  world.pass(2s);
  world.answer_query();
  world.pass(2s);
  cr_expect(!world.machine.run().fault.pending, "it is dealt with once the job goes on");
}

Test(machine, blames_the_cluster_for_a_step_that_a_node_did_not_start) {
  MachineWorld world;
  world.begin();
  world.start_ranks();
  world.slurm_silent = true;
  world.feed(input::SrunLine{
      "srun: error: Task launch for StepId=7.1 failed on node n2: Invalid job credential"});
  world.ranks_end(1);
  cr_expect(world.machine.run().fault.blame == Blame::cluster, "%s",
            world.machine.run().cause.c_str());
}

// Such ranks once finished before slurmctld had answered, were ended all the same and finished
// twice.
Test(machine, starts_no_ranks_that_it_would_end_at_once) {
  MachineWorld world;
  world.begin();
  world.agents_greet();
  world.slurm_silent = true;
  world.agent(agent_error(ErrorKind::io, ".lock was not free within 30 s"));
  world.start_ranks();
  cr_expect(world.rank_starts == 0);
  world.slurm_silent = false;
  cr_expect(world.ends_in_a_kind_world() && world.rank_starts == 1);
}
