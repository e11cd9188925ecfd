// SPDX-License-Identifier: Apache-2.0
// Stops of a run, and what comes between: deaths, answers, other stops, and each in every order.
#include <criterion/criterion.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <string>

#include "launcher/record/lost_halt.h"
#include "tests/unit/launcher/machine_world.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kClient = 5;
const RequeueRoad::Done kForgotten{.end = RoadEnd::forgotten, .outlast = 10s};

input::StopRequest resize_to(std::uint64_t gpus) { return {.client = kClient, .gpus = gpus}; }

/// Ranks at work at step 5, and a stop whose gate is at 6.
struct Stopping : MachineWorld {
  explicit Stopping(const input::StopRequest& request = resize_to(2)) {
    start();
    progress(5);
    feed(request);
    answer_gate(5);
  }
  void all_leave() {
    ranks_end(0);
    agents_end(0);
  }
};

template <typename S>
bool is(const MachineWorld& world) {
  return std::holds_alternative<S>(world.machine.state());
}

/// How often the history has this event.
auto times(const MachineWorld& world, const std::string& event) {
  return std::count_if(world.history.begin(), world.history.end(),
                       [&event](const auto& line) { return line.event == event; });
}

RunRules with_signal() {
  RunRules rules = MachineWorld::rules();
  rules.own.signal = SIGUSR1;
  return rules;
}

RunRules with_command() {
  RunRules rules = MachineWorld::rules();
  rules.own.command = "save";
  return rules;
}

RunRules with_batches() {
  RunRules rules = MachineWorld::rules();
  Contract contract;
  contract.tenant = "vision";
  contract.gpus = GpusRange::between(1, 8);
  contract.batch = BatchRange{64, 512};
  rules.contract = contract;
  return rules;
}

}  // namespace

Test(stops, change_the_batch_with_the_size) {
  MachineWorld world(with_batches());
  world.start();
  world.progress(5);
  world.feed(input::StopRequest{.client = kClient, .gpus = 2, .batch = 128});
  cr_expect(world.planned_size == 2u && world.planned_batch == 128u);
  cr_expect(!world.planned_batch_at, "a user's word is for any size");
  cr_expect(world.last() == "CHECKPOINTING: resize to 2 GPUs, batch 128");
  world.answer_gate(5);
  world.save(6);
  cr_expect(has(world.last_reply(kClient), "\"batch\":128"));
  cr_expect(world.last() == "RESIZING: to 2 GPUs, batch 128");
}

Test(stops, tie_the_batch_of_a_plan_to_its_size) {
  MachineWorld world(with_batches());
  world.start();
  world.progress(5);
  const std::uint32_t grown = world.machine.run().layout.gpus() + 1;
  world.feed(input::StopRequest{.client = kClient, .planned = true, .gpus = grown, .batch = 128});
  cr_expect(!world.planned_size, "left alone, it keeps its size");
  cr_expect(world.planned_batch == 128u && world.planned_batch_at == grown);
}

Test(stops, hold_a_batch_to_the_contract) {
  for (const std::uint64_t batch : {std::uint64_t{0}, std::uint64_t{63}, std::uint64_t{513}}) {
    MachineWorld world(with_batches());
    world.start();
    world.feed(input::StopRequest{.client = kClient, .gpus = 2, .batch = batch});
    cr_expect(has(world.last_reply(kClient), "the job may not use that batch"));
    cr_expect(!world.machine.run().stop && !world.planned_batch && !world.planned_size);
  }
  MachineWorld world;
  world.start();
  world.feed(input::StopRequest{.client = kClient, .batch = 64});
  cr_expect(has(world.last_reply(kClient), "the job may not use that batch"), "it has no range");
}

Test(stops, forget_a_batch_when_the_ranks_go_on) {
  RunRules rules = with_batches();
  rules.own.command = "save";
  MachineWorld world(rules);
  world.begin();
  world.start_ranks();
  world.feed(input::StopRequest{.client = kClient, .gpus = 2, .batch = 128});
  cr_expect(world.planned_batch == 128u);
  world.own_command_ends(3);
  cr_expect(is<state::Running>(world) && !world.planned_batch && !world.planned_size);
}

Test(stops, tell_the_client_of_a_batch_that_could_not_be_recorded) {
  MachineWorld world(with_batches());
  world.start();
  world.progress(5);
  world.disk_full = true;
  world.feed(input::StopRequest{.client = kClient, .batch = 128});
  cr_expect(world.has_said("no space; the job may continue with its former batch"));
  world.answer_gate(5);
  world.save(6);
  cr_expect(has(world.last_reply(kClient), "\"committed\"") &&
            !has(world.last_reply(kClient), "batch"));
}

Test(stops, hand_the_job_over_once_its_step_is_committed) {
  Stopping world;
  cr_expect(has(world.last_reply(kClient), "\"stopping\"") && has(world.last_reply(kClient), "6"));
  cr_expect(world.planned_size == 2u, "a launcher that is killed now comes back at that size");
  world.give_parts(6);
  cr_expect(!has(world.last_reply(kClient), "committed"), "it is written, not committed");
  world.commit(6);
  cr_expect(has(world.last_reply(kClient), "\"committed\""));
  cr_expect(is<state::HandedOver>(world) && world.last() == "RESIZING: to 2 GPUs");
  world.all_leave();
  cr_expect(!world.exit && world.roads.empty(), "the client requeues it");
  world.record.state = SlurmState::pending;
  world.feed(input::Term{});
  world.pass(1s);
  cr_expect(world.exit == 0 && world.roads.size() == 1 && world.roads[0].gpus == 2u);
}

Test(stops, are_finished_by_the_launcher_when_the_client_has_gone) {
  for (const bool hold : {false, true}) {
    Stopping world({.client = kClient, .hold = hold});
    world.save(6);
    world.all_leave();
    world.pass(9s);
    cr_expect(world.roads.empty(), "the client has its time");
    world.pass(2s);
    cr_expect(world.roads.size() == 1 && world.roads[0].hold == hold && world.exit == 0);
  }
}

/// World: 4 GPUs.
Test(stops, left_alone_with_a_plan_a_job_may_shrink_but_does_not_grow) {
  for (const std::uint32_t gpus : {2U, 8U}) {
    Stopping world({.client = kClient, .planned = true, .gpus = gpus});
    const std::optional<std::uint32_t> alone = gpus == 2 ? std::optional(gpus) : std::nullopt;
    cr_expect(world.planned_size == alone, "a launcher that is killed comes back so");
    world.save(6);
    world.all_leave();
    cr_expect(has(world.last_reply(kClient), "\"committed\""));
    world.pass(11s);
    cr_expect(world.roads.size() == 1 && world.roads[0].gpus == alone, "%u", gpus);
  }
}

Test(stops, wait_for_a_commit_that_comes_after_the_ranks) {
  Stopping world;
  world.give_parts(6);
  world.ranks_end(0);
  cr_expect(is<state::Judging>(world));
  world.pass(2s);
  cr_expect(is<state::Judging>(world), "the leader has yet to say that it is committed");
  world.commit(6);
  cr_expect(is<state::HandedOver>(world) && has(world.last_reply(kClient), "\"committed\""));
}

Test(stops, tell_the_client_of_a_step_that_could_not_be_saved) {
  Stopping world;
  world.ranks_end(0);
  world.answer_query();
  world.agents_end(0);
  world.pass(1s);
  cr_expect(is<state::HandedOver>(world));
  cr_expect(has(world.last_reply(kClient), "\"unsaved\":6"), "%s",
            world.last_reply(kClient).c_str());
  cr_expect(has(world.last(), "but step 6 could not be saved"));
}

Test(stops, survive_a_rank_that_dies_at_any_moment) {
  using Moment = std::function<void(MachineWorld&)>;
  const Moment moments[] = {
      [](MachineWorld&) {},
      [](MachineWorld& world) { world.feed(resize_to(2)); },
      [](MachineWorld& world) {
        world.feed(resize_to(2));
        world.answer_gate(5);
      },
      [](MachineWorld& world) {
        world.feed(resize_to(2));
        world.answer_gate(5);
        world.give_parts(6);
      },
  };
  for (const Moment& before : moments) {
    for (const bool silent : {false, true}) {
      MachineWorld world;
      world.start();
      world.progress(5);
      before(world);
      world.slurm_silent = silent;
      world.ranks_killed(SIGKILL);
      world.feed(resize_to(2));
      world.pass(3s);
      cr_expect(world.roads.empty(), "Slurm has not said that it is a fault");
      world.slurm_silent = false;
      cr_expect(world.ends_in_a_kind_world());
      cr_expect(world.broken.empty(), "%s", world.broken.c_str());
    }
  }
}

Test(stops, survive_an_agent_that_dies_after_the_commit) {
  Stopping world;
  world.save(6);
  world.agent_lost("the agent on n2 was killed");
  world.agents_end(1);
  world.ranks_end(1);
  cr_expect(is<state::HandedOver>(world), "all is committed");
  world.pass(11s);
  cr_expect(world.exit == 0 && world.roads.size() == 1);
}

Test(stops, take_one_at_a_time) {
  Stopping world;
  world.feed(input::StopRequest{.client = 6, .hold = true});
  cr_expect(has(world.last_reply(6), "already stopping: resize"));
  world.record.times.preempt = 1000;
  world.feed(input::Term{});
  world.pass(1s);
  cr_expect(world.machine.run().stop->reason == "resize", "a preemption finds it under way");
  world.save(6);
  world.feed(input::StopRequest{.client = 7});
  cr_expect(has(world.last_reply(7), "already stopping"));
}

Test(stops, refuse_what_the_contract_or_the_moment_forbids) {
  RunRules rules = MachineWorld::rules();
  rules.contract = *Contract::parse("bellows/1 tenant=vision gpus=1-8");
  MachineWorld world(rules);
  world.begin();
  for (const std::uint64_t gpus : {0ull, 9ull, 4097ull, 1ull << 32, (1ull << 32) + 2}) {
    world.feed(resize_to(gpus));
    cr_expect(has(world.last_reply(kClient), "may not hold that many GPUs"));
  }
  world.start_ranks();
  world.feed(resize_to(2));
  cr_expect(has(world.last_reply(kClient), "has not called bellows_init"));
  world.rank(0, event::Rank::State::joined);
  world.feed(resize_to(2));
  cr_expect(has(world.last_reply(kClient), "\"again\":true"), "the others are about to");
  cr_expect(!world.machine.run().stop);
  world.feed(input::StopRequest{.client = kClient, .from_scratch = true});
  cr_expect(is<state::Clearing>(world) && has(world.last_reply(kClient), "stopping"));
}

Test(stops, end_an_attempt_that_has_yet_to_begin) {
  MachineWorld world;
  world.begin();
  world.feed(resize_to(2));
  cr_expect(has(world.last_reply(kClient), "\"step\":null") && is<state::Clearing>(world));
  world.agents_end(0);
  cr_expect(is<state::HandedOver>(world) && world.rank_starts == 0);
}

Test(stops, turn_a_restart_that_is_under_way_into_a_stop) {
  MachineWorld world;
  world.start();
  world.save(5);
  world.ranks_killed(SIGKILL);
  world.pass(600ms);
  cr_expect(is<state::Draining>(world));
  world.feed(resize_to(2));
  world.answer_query();
  world.agents_end(0);
  cr_expect(is<state::HandedOver>(world) && world.rank_starts == 1);
}

Test(stops, are_refused_by_a_run_that_is_ending) {
  MachineWorld world;
  world.start();
  world.ranks_end(0);
  world.feed(resize_to(2));
  cr_expect(has(world.last_reply(kClient), "the job is ending"), "it may have finished");
}

Test(stops, follow_a_requeue_by_somebody_else) {
  MachineWorld world;
  world.start();
  world.save(5);
  world.record.state = SlurmState::pending;
  world.record.restarts = 1;
  world.feed(input::Term{});
  world.pass(1s);
  cr_expect(world.exit == 0 && world.roads.size() == 1 &&
            world.last() == "QUEUED: requeued by Slurm or an operator");
}

Test(stops, leave_a_later_run_alone) {
  MachineWorld world;
  world.start();
  world.record.restarts = 1;
  world.record.times.start += 50;
  world.feed(input::Term{});
  world.pass(1s);
  cr_expect(world.exit == 0 && world.roads.empty() &&
            world.has_said("leaving the job to that run"));
}

Test(stops, leave_a_directory_that_another_run_has_taken) {
  for (const bool same_job : {true, false}) {
    MachineWorld world;
    world.start();
    world.feed(input::Owner{"7.0.100.r.1"});
    world.feed(input::Owner{same_job ? "7.1.200.x.1" : "8.0.200.x.1"});
    world.ranks_killed(SIGTERM);
    world.agents_end(0);
    cr_expect(world.exit == (same_job ? 0 : 3) && world.roads.empty());
  }
}

Test(stops, leave_it_also_when_the_step_of_a_stop_is_committed_late) {
  Stopping world;
  world.feed(input::Owner{"7.0.100.r.1"});
  world.give_parts(6);
  world.feed(input::Owner{"8.0.200.x.1"});
  world.commit(6);
  world.ranks_killed(SIGTERM);
  world.agents_end(0);
  cr_expect(world.exit == 3 && world.roads.empty(), "the job is not this run's to requeue");
}

Test(stops, do_not_take_ranks_without_agents_for_a_finished_program) {
  Stopping world;
  world.slurm_silent = true;
  world.agents_end(1);
  world.ranks_end(0);
  world.slurm_silent = false;
  world.pass(1s);
  cr_expect(world.last() != "COMPLETED: the program has finished", "%s", world.last().c_str());
  world.pass(15s);
  cr_expect(world.roads.size() == 1 && world.exit == 0);
}

Test(stops, record_a_hand_over_once_though_an_agent_fails_afterwards) {
  Stopping world;
  world.save(6);
  world.agent({event::CommandFailed{.error = {ErrorKind::io, "out of memory"}}, "n1"});
  world.all_leave();
  world.pass(15s);
  cr_expect(world.exit == 0 && world.roads.size() == 1 && times(world, "RESIZING") == 1);
}

Test(stops, record_that_a_forgotten_run_is_cancelled) {
  MachineWorld world;
  world.road = kForgotten;
  world.start();
  world.record.state = SlurmState::pending;
  world.feed(input::Term{});
  world.pass(1s);
  cr_assert(is<state::Forgotten>(world));
  world.record.state = SlurmState::cancelled;
  world.feed(input::Term{});
  world.pass(1s);
  cr_expect(world.exit == 1 && world.last() == "CANCELLED: scancel");
}

Test(stops, outlast_a_slurmctld_that_forgot_the_run) {
  MachineWorld world;
  world.road = kForgotten;
  world.start();
  world.record.state = SlurmState::pending;
  world.feed(input::Term{});
  world.pass(9s);
  cr_expect(is<state::Forgotten>(world) && !world.exit, "its slurmd must be told to end it");
  world.feed(resize_to(2));
  cr_expect(has(world.last_reply(kClient), "the job is ending"));
  world.record.state = SlurmState::preempted;
  world.feed(input::Term{});
  world.pass(500ms);
  cr_expect(is<state::Forgotten>(world) && world.roads.size() == 1, "it is requeued already");
  world.pass(2s);
  cr_expect(world.exit == 0 && world.roads.size() == 1);
}

Test(stops, outlast_it_also_where_no_change_of_the_job_is_accepted) {
  for (const RoadEnd end : {RoadEnd::kept_size, RoadEnd::as_it_is}) {
    MachineWorld world;
    world.road = kForgotten;
    world.road.end = end;
    world.start();
    world.record.state = SlurmState::pending;
    world.feed(input::Term{});
    world.pass(9s);
    cr_expect(is<state::Forgotten>(world) && !world.exit, "its slurmd must be told to end it");
    world.pass(2s);
    cr_expect(world.exit == 0 && world.roads.size() == 1);
  }
}

Test(stops, repeat_a_halt_that_a_killed_launcher_left) {
  SlurmJob job = MachineWorld::job();
  job.restarts = 1;
  MachineWorld world(MachineWorld::rules(), job);
  world.around.halt_was_lost = true;
  world.begin();
  cr_expect(world.exit == 0 && world.roads.size() == 1 && world.roads[0].hold);
  cr_expect(world.agent_starts == 0 && world.last() == std::string("HALTED: ") + kHalt);
}

Test(stops, train_no_program_again_that_has_finished) {
  MachineWorld world;
  world.around.finished = "/ckpt/finished-7.0";
  world.begin();
  cr_expect(world.exit == 0 && world.agent_starts == 0 && has(world.last(), "COMPLETED"));
}

Test(stops, signal_a_program_that_saves_by_itself) {
  MachineWorld world(with_signal());
  world.begin();
  world.start_ranks();
  world.slurm_silent = true;
  world.feed(resize_to(2));
  world.pass(200s);
  cr_expect(is<state::Saving>(world), "it has not been told: its time has not begun");
  world.slurm_silent = false;
  world.pass(1s);
  cr_expect(world.step_signals.size() == 1 && world.step_signals[0] == SIGUSR1);
  world.ranks_end(0);
  world.agents_end(0);
  cr_expect(is<state::HandedOver>(world) && has(world.last_reply(kClient), "\"own\":\"saved\""));
}

Test(stops, end_a_program_that_does_not_save_in_time) {
  MachineWorld world(with_signal());
  world.begin();
  world.start_ranks();
  world.feed(input::Usr1{});
  world.pass(125s);
  cr_expect(is<state::Clearing>(world) && world.has_said("no checkpoint within 120 s"));
  cr_expect(world.ends_in_a_kind_world() && world.exit == 0 && world.roads.size() == 1);
}

Test(stops, go_on_when_the_checkpoint_command_fails_and_nobody_must_stop) {
  MachineWorld world(with_command());
  world.begin();
  world.start_ranks();
  world.feed(resize_to(2));
  cr_expect(world.own_command);
  world.own_command_ends(3);
  cr_expect(is<state::Running>(world) && !world.own_command && !world.planned_size);
  cr_expect(has(world.last_reply(kClient), "exited with status 3") && world.rank_signals.empty());
  world.feed(input::Usr1{});
  world.own_command_ends(3);
  cr_expect(is<state::Clearing>(world), "who is preempted must go");
}

Test(stops, let_slurm_say_whether_ranks_that_ended_were_told_to) {
  MachineWorld world(with_signal());
  world.begin();
  world.start_ranks();
  world.slurm_silent = true;
  world.feed(input::Term{});
  world.ranks_end(0);
  world.pass(5s);
  cr_expect(is<state::Running>(world), "a preempted program that has saved has not finished");
  world.slurm_silent = false;
  world.record.times.preempt = 1000;
  world.pass(1s);
  world.agents_end(0);
  cr_expect(world.exit == 0 && world.roads.size() == 1);
}

Test(stops, kill_a_step_that_ignores_them) {
  Stopping world(input::StopRequest{.client = 0, .from_scratch = true});
  world.save(6);
  cr_expect(is<state::Clearing>(world) && world.rank_signals.empty(), "they are on their way out");
  world.pass(30s);
  cr_expect(world.rank_signals == std::vector<int>({SIGTERM, SIGKILL}));
  cr_expect(!world.step_signals.empty() && world.step_signals.back() == SIGKILL);
}

Test(stops, go_on_smaller_without_a_lost_node_once_its_step_is_gone) {
  MachineWorld world;
  world.start();
  world.save(5);
  world.record.nodes.pop_back();
  world.lingering = {"bellows-ranks-1"};
  world.ranks_killed(SIGKILL);
  world.pass(600ms);
  world.answer_query();
  world.agents_end(0);
  world.pass(2s);
  cr_expect(is<state::Clearing>(world), "its GPUs are not free yet");
  world.lingering.clear();
  world.pass(2s);
  cr_expect(is<state::Greeting>(world) &&
            world.has_said("the job continues with 2 of 4 GPUs on n1"));
}

Test(stops, judge_ranks_and_command_together) {
  MachineWorld world(with_command());
  world.begin();
  world.start_ranks();
  world.feed(input::Usr1{});
  world.now += 121s;
  world.feed(input::RanksGone{});
  world.feed(input::RanksEnded{ChildExit{0}});
  world.own_command_ends(0);
  world.agents_end(0);
  cr_expect(world.exit == 0 && world.roads.size() == 1, "it has saved, and has not finished");
}

Test(stops, notice_agents_that_ended_while_a_program_saved) {
  MachineWorld world(with_command());
  world.begin();
  world.start_ranks();
  world.feed(resize_to(2));
  world.agents_end(1);
  world.own_command_ends(3);
  cr_expect(is<state::Running>(world) && world.machine.run().fault.pending && !world.agents);
}

Test(stops, record_a_hand_over_once) {
  Stopping world;
  world.save(6);
  world.record.state = SlurmState::preempted;
  world.feed(input::Term{});
  world.pass(1s);
  cr_expect(world.exit == 0 && world.roads.size() == 1 && times(world, "RESIZING") == 1);
}

Test(stops, do_not_bring_a_forgotten_run_back) {
  Stopping world;
  world.road = kForgotten;
  world.record.state = SlurmState::pending;
  world.feed(input::Term{});
  world.pass(1s);
  cr_assert(is<state::Forgotten>(world));
  world.save(6);
  cr_expect(is<state::Forgotten>(world) && world.machine.run().progress.newest_commit == 6u);
}

Test(stops, leave_a_finished_program_finished) {
  Stopping world;
  world.give_parts(6);
  world.feed(input::RanksGone{});
  world.feed(input::RanksEnded{ChildExit{0}, "/ckpt/finished-7.0"});
  world.commit(6);
  world.agents_end(0);
  cr_expect(world.exit == 0 && world.roads.empty() && has(world.last(), "COMPLETED"));
}

Test(stops, tell_the_last_words_of_agents_that_never_spoke) {
  MachineWorld world;
  world.begin();
  world.feed(
      input::AgentLost{"an agent exited", "an agent exited; its last words: no library", ""});
  cr_expect(world.has_said("its last words: no library"));
}
