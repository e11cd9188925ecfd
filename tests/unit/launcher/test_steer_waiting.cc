// SPDX-License-Identifier: Apache-2.0
// A resize of a job that waits, and of one that nobody can move.
#include <criterion/criterion.h>

#include <functional>
#include <string>

#include "tests/unit/launcher/steer_support.h"

using namespace bellows;

Test(resize, only_changes_the_wish_of_a_waiting_job) {
  for (const bool held : {false, true}) {
    SteerWorld world;
    world.slurm.full = true;
    world.slurm.record.state = SlurmState::pending;
    world.slurm.record.reason = held ? "JobHeldUser" : "Resources";
    if (held) world.slurm.record.priority = 0;
    const Resized done = resize(world, 2);
    EXPECT_END(done.end, kOk, "");
    cr_expect(done.report.was_pending && !done.report.unchanged && world.asked() == "change");
    cr_expect(world.slurm.changes.size() == 1 && world.demands.empty());
    cr_expect(world.slurm.record.requested_gpus() == 2 &&
              held == (world.slurm.record.priority == 0));
    cr_expect(world.passed() < 1);
  }
}

Test(resize, leaves_a_waiting_job_as_it_was_where_slurm_refuses) {
  SteerWorld world;
  world.slurm.full = true;
  world.slurm.record.state = SlurmState::pending;
  world.slurm.refused_sizes = {2};
  EXPECT_END(resize_to_2(world), kFailed, kRefusedSize + "; the pending job is unchanged");
  cr_expect(world.slurm.changes.back().gpus == 4u);

  SteerWorld never;
  never.slurm.full = true;
  never.slurm.record.state = SlurmState::pending;
  never.slurm.record.reason = "PartitionNodeLimit";
  EXPECT_END(resize_to_2(never), kFailed,
             "Slurm says that job 7 can never run with 2 GPUs (PartitionNodeLimit); it asks for "
             "4 GPUs again and continues when it starts");
  cr_expect(never.slurm.record.requested_gpus() == 4);
}

Test(resize, does_not_watch_a_waiting_job_for_ever) {
  SteerWorld world;
  world.slurm.full = true;
  world.slurm.record.state = SlurmState::pending;
  EXPECT_END(resize_to_2(world), kOk, "");
  cr_expect(world.passed() > 12 && world.passed() < 13, "Slurm has yet to say why it waits");
}

Test(resize, to_the_same_size_does_nothing) {
  for (const SlurmState state : {SlurmState::running, SlurmState::pending}) {
    SteerWorld world;
    world.slurm.full = true;
    world.slurm.record.state = state;
    const Resized done = resize(world, 4);
    EXPECT_END(done.end, kOk, "");
    cr_expect(done.report.unchanged && world.asked().empty() && world.demands.empty());
  }
}

Test(resize, refuses_what_nobody_can_move) {
  using Change = std::function<void(SlurmJob&)>;
  const std::pair<Change, std::string> cases[] = {
      {[](SlurmJob& job) { job.kind.cron = true; },
       "comes from scrontab, and Slurm lets nobody change such jobs"},
      {[](SlurmJob& job) { job.kind.het = true; }, "has several components, whose sizes are fixed"},
      {[](SlurmJob& job) { job.kind.batch = false; }, "cannot be requeued (sbatch --requeue)"},
      {[](SlurmJob& job) { job.kind.may_requeue = false; },
       "cannot be requeued (sbatch --requeue)"},
      {[](SlurmJob& job) { job.state = SlurmState::cancelled; }, "is over (CANCELLED)"},
      {[](SlurmJob& job) {
         job.state = SlurmState::completed;
         job.completing = true;
       },
       "is over (COMPLETED)"},
      {[](SlurmJob& job) { job.state = SlurmState::suspended; }, "is suspended"},
      {[](SlurmJob& job) { job.admin_comment = ""; },
       "has no Bellows contract (submit it with --framework and --gpus-range)"}};
  for (const auto& [change, sentence] : cases) {
    SteerWorld world;
    change(world.slurm.record);
    EXPECT_END(resize_to_2(world), kRefused, "job 7 " + sentence + kNothing);
    cr_expect(world.asked().empty() && world.demands.empty());
  }
  SteerWorld world;
  EXPECT_END(resize(world, 9).end, kRefused, "job 7 may hold 1-8 GPUs, not 9" + kNothing);
}

Test(resize, names_a_task_of_an_array_and_refuses_the_whole_of_it) {
  SteerWorld task;
  task.slurm.record.array = {.job = 3, .task = 1};
  task.slurm.refused_sizes = {2};
  EXPECT_END(resize_to_2(task), kRefused, "job 3_1 cannot have 2 GPUs: " + kRefusedSize + kNothing);
  SteerWorld array;
  const Error error = names_an_array(kJob, {"7_1", "7_2"});
  array.slurm.no_job = error;
  EXPECT_END(resize_to_2(array), kRefused, error.text);
  cr_expect(array.asked().empty() && array.demands.empty());
}
