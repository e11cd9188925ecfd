// SPDX-License-Identifier: Apache-2.0
// A resize without Slurm: all that its launcher, slurmctld, other people and the time can do to it.
#include <criterion/criterion.h>

#include <string>

#include "slurm/requeue.h"
#include "tests/unit/launcher/steer_support.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;

TestSuite(resize, .timeout = 20);

namespace {

void allow_batches(SteerWorld& world) {
  auto contract = Contract::parse(world.slurm.record.admin_comment);
  contract->batch = BatchRange{64, 512};
  world.slurm.record.admin_comment = contract->to_string();
}

/// What the launcher does when no command requeues its job.
void launcher_takes_over(SteerWorld& world) {
  NextRun next{.restarts = 0, .started = 900, .gpus_now = 4};
  next.gpus = 2;
  const RequeueRoad road(Party::launcher, next, world.moment(world.slurm.clock));
  (void)walk(road, world.slurm, world.slurm.record, world.time());
  world.pass(20);
}

}  // namespace

Test(resize, moves_a_running_job) {
  SteerWorld world;
  const Resized done = resize(world, 2);
  EXPECT_END(done.end, kOk, "");
  const FakeSlurm& slurm = world.slurm;
  cr_expect(slurm.starts == 1 && !slurm.lost && slurm.record.restarts == 1);
  cr_expect(slurm.record.gpus() == 2 && world.open_lines == 0);
  cr_expect(world.asked() == "may_change_size requeue change", "%s", world.asked().c_str());
  cr_assert(slurm.changes.size() >= 2);
  cr_expect(slurm.changes[0].gpus == 2u && slurm.changes[0].begin_time, "one update for both");
  cr_expect(!slurm.changes[1].gpus && *slurm.changes[1].begin_time < *slurm.changes[0].begin_time,
            "and the start comes nearer once the job has completed");
  const ResizeReport& report = done.report;
  cr_expect(report.from == 4 && report.to == 2 && report.step == 6u && report.job.gpus() == 2);
  cr_expect(report.commit_s > 0.9 && report.commit_s < 1.5);
  cr_expect(report.requeue_s > 2 && report.requeue_s < 6, "%f", report.requeue_s);
  cr_expect(world.has_said("stopping at step 6") && world.has_said("requeued; asked for 2 GPUs"));
}

Test(resize, tells_the_launcher_all_that_it_must_know) {
  for (const bool from_scratch : {false, true}) {
    SteerWorld world;
    EXPECT_END(resize(world, 2, from_scratch).end, kOk, "");
    cr_assert(world.demands.size() == 1);
    const std::string scratch = from_scratch ? "true" : "false";
    cr_expect(world.demands[0] ==
                  R"({"cmd":"stop","from_scratch":)" + scratch + R"(,"gpus":2,"reason":"resize"})",
              "%s", world.demands[0].c_str());
  }
}

Test(resize, changes_the_batch_with_or_without_the_size) {
  for (const std::uint32_t gpus : {2u, 4u}) {
    SteerWorld world;
    allow_batches(world);
    world.launchers = {commits(R"({"event":"committed","step":6,"batch":128})")};
    const Resized done = resize(world, gpus, false, 128);
    EXPECT_END(done.end, kOk, "");
    cr_expect(world.demands.size() == 1 && has(world.demands[0], R"("batch":128)"));
    cr_expect(done.report.batch == 128u && done.report.job.gpus() == gpus);
    cr_expect(world.slurm.starts == 1 && world.slurm.record.restarts == 1 && !world.slurm.lost);
    const bool asks = has(world.asked(), "may_change_size");
    cr_expect(asks == (gpus == 2), "there is nothing to ask when the size stays");
  }
}

Test(resize, refuses_a_batch_that_the_job_may_not_use) {
  SteerWorld none;
  EXPECT_END(
      resize(none, 2, false, 128).end, kRefused,
      "job 7 has no range of batches; submit it with sbatch --batch-range=MIN-MAX" + kNothing);
  for (const std::uint64_t batch : {std::uint64_t{63}, std::uint64_t{513}}) {
    SteerWorld world;
    allow_batches(world);
    EXPECT_END(resize(world, 2, false, batch).end, kRefused,
               fmt::format("job 7 may use a batch of 64-512, not {}", batch) + kNothing);
    cr_expect(world.demands.empty() && world.asked().empty());
  }
  SteerWorld pending;
  allow_batches(pending);
  pending.slurm.record.state = SlurmState::pending;
  pending.slurm.full = true;
  EXPECT_END(resize(pending, 2, false, 128).end, kRefused,
             "job 7 is pending, and only its launcher can change its batch: leave out --batch, or "
             "try again once the job runs" +
                 kNothing);
  cr_expect(pending.slurm.changes.empty());
}

Test(resize, says_that_a_batch_was_not_recorded) {
  SteerWorld world;
  allow_batches(world);
  EXPECT_END(resize(world, 2, false, 128).end, kFailed,
             "job 7 runs again on 2 GPUs, but its launcher could not record the batch 128; see "
             "what it says in bellows logs 7");
  cr_expect(world.slurm.record.gpus() == 2);
}

Test(resize, ends_where_the_launcher_refuses) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"event":"error","error":"the job is ending"})",
       "the launcher refuses: the job is ending; nothing was changed"},
      {R"({"event":"error","error":"the job is already stopping: resize"})",
       "the launcher refuses: the job is already stopping: resize; nothing was changed"},
      {R"({"event":"error"})", "the launcher refuses: no reason given; nothing was changed"},
      {R"({"event":"error","error":7,"again":1})",
       "the launcher refuses: no reason given; nothing was changed"},
      {R"({"event":"finished"})", "the job finished before it could be stopped"}};
  for (const auto& [words, sentence] : cases) {
    SteerWorld world;
    world.launchers = {{.words = {{0.1, words}}}};
    EXPECT_END(resize_to_2(world), kRefused, sentence);
    cr_expect(world.asked() == "may_change_size" && world.demands.size() == 1);
    cr_expect(world.open_lines == 0 && world.passed() < 1);
  }
}

Test(resize, asks_again_while_ranks_are_starting) {
  const LauncherPart starting{
      .words = {{0.1, R"({"event":"error","error":"no rank has a checkpoint","again":true})"}}};
  SteerWorld world;
  world.launchers = {starting, starting, commits()};
  EXPECT_END(resize_to_2(world), kOk, "");
  cr_expect(world.demands.size() == 3 && world.slurm.record.gpus() == 2);
  cr_expect(world.has_said("the job's ranks are still starting; trying again"));

  SteerWorld never;
  never.launchers = {starting};
  EXPECT_END(resize_to_2(never), kRefused,
             "the launcher refuses: no rank has a checkpoint; nothing was changed");
  cr_expect(never.passed() > 14 && never.passed() < 18, "%f", never.passed());
  cr_expect(never.asked() == "may_change_size" && never.open_lines == 0);
}

Test(resize, says_what_became_of_the_checkpoint) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"event":"committed","step":5,"unsaved":6})",
       "step 6 could not be saved; the job continues from step 5"},
      {R"({"event":"committed","step":null,"unsaved":6})",
       "step 6 could not be saved; the job continues from scratch"},
      {R"({"event":"committed","step":null,"own":"saved"})",
       "stopped; the program has saved its own checkpoint"},
      {R"({"event":"committed","step":null,"own":"unknown"})",
       "stopped; whether the program had saved anything by itself is not known"},
      {R"({"event":"committed","step":null})", "stopped; there is no checkpoint yet"}};
  for (const auto& [words, sentence] : cases) {
    SteerWorld world;
    world.launchers = {commits(words)};
    const Resized done = resize(world, 2);
    EXPECT_END(done.end, kOk, "");
    cr_expect(world.has_said(sentence), "%s", sentence);
    cr_expect(done.report.step ==
              (has(words, "\"step\":5") ? std::optional<std::uint64_t>(5) : std::nullopt));
  }
}

Test(resize, passes_over_what_it_does_not_understand) {
  SteerWorld world;
  world.launchers = {commits()};
  auto& words = world.launchers[0].words;
  for (const char* noise : {"noise", "[]", "{}", R"({"event":5})"})
    words.insert(words.begin(), {0.05, noise});
  EXPECT_END(resize_to_2(world), kOk, "");
}

Test(resize, finds_no_launcher) {
  SteerWorld world;
  world.launchers = {{.words = {}, .dies_after = 0.1}};
  EXPECT_END(
      resize_to_2(world), kUnreachable,
      "job 7 has no launcher that answers (is its script running 'exec bellows run'?)" + kNothing);
  cr_expect(world.asked() == "may_change_size" && world.demands.size() == 1);

  SteerWorld odd;
  odd.launchers = {{.words = {}, .dies_after = 0.1, .exit_code = 127, .complaint = "no bellows"}};
  EXPECT_END(resize_to_2(odd), kUnreachable,
             "job 7 has no launcher that answers (is its script running 'exec bellows run'?) "
             "(no bellows)" +
                 kNothing);

  SteerWorld none;
  none.no_step = Error{ErrorKind::io, "cannot start srun"};
  EXPECT_END(resize_to_2(none), kUnreachable, "cannot start srun" + kNothing);
}

Test(resize, outlasts_a_slurm_that_starts_no_step) {
  const LauncherPart no_step{
      .words = {}, .dies_after = 0.1, .exit_code = kFailed, .complaint = "srun: error: no"};
  SteerWorld world;
  world.launchers = {no_step, no_step, commits()};
  EXPECT_END(resize_to_2(world), kOk, "");
  cr_expect(world.has_said("Slurm does not start a step in the job yet; trying again"));

  SteerWorld never;
  never.launchers = {no_step};
  EXPECT_END(
      resize_to_2(never), kUnreachable,
      "Slurm did not start a step in job 7, so its launcher cannot be asked (srun: error: no)" +
          kNothing);
  cr_expect(never.passed() < 18 && never.asked() == "may_change_size");
}

Test(resize, does_not_wait_for_ever_for_a_launcher) {
  SteerWorld world;
  world.launchers = {{.words = {}}};
  EXPECT_END(resize_to_2(world), kUnreachable,
             "the job's launcher did not answer; the job was not requeued");
  cr_expect(world.passed() > 30 && world.passed() < 31 && world.asked() == "may_change_size");
}

Test(resize, lets_the_step_end_by_itself_but_not_for_ever) {
  SteerWorld world;
  world.launchers = {{.words = {{0.1, R"({"event":"finished"})"}}, .lingers = 1.5}};
  (void)resize_to_2(world);
  cr_expect(world.passed() > 1.6 && world.passed() < 1.8, "%f", world.passed());
  SteerWorld stuck;
  stuck.launchers = {{.words = {{0.1, R"({"event":"finished"})"}}, .lingers = 1e6}};
  (void)resize_to_2(stuck);
  cr_expect(stuck.passed() > 2 && stuck.passed() < 2.3, "%f", stuck.passed());
}

Test(resize, survives_a_launcher_that_dies_after_its_commit) {
  for (const double after : {1.0, 1.05, 2.0}) {
    SteerWorld world;
    world.launchers[0].dies_after = after;
    world.slurm.batch_ends_after = 6.5;  // its steps linger
    EXPECT_END(resize_to_2(world), kOk, "");
    cr_expect(world.slurm.record.gpus() == 2 && !world.slurm.lost && world.slurm.starts == 1);
  }
}

Test(resize, leaves_a_job_alone_whose_launcher_dies_while_it_stops) {
  SteerWorld world;
  world.launchers[0].dies_after = 0.5;
  EXPECT_END(resize_to_2(world), kFailed,
             "the job's launcher ended before it had a checkpoint; the job continues from its "
             "newest one, perhaps at its old size: see bellows status 7");
  cr_expect(world.asked() == "may_change_size");
}

Test(resize, changes_nothing_while_slurmctld_is_silent) {
  SteerWorld away;
  away.slurm.silent_calls = kForEver;
  EXPECT_END(resize_to_2(away), kUnreachable, "Connection refused");
  cr_expect(away.demands.empty() && away.asked().empty());

  SteerWorld leave;
  leave.slurm.before_call = [&leave](const std::string& call) {
    if (call == "may_change_size") leave.slurm.silent_calls = kForEver;
  };
  EXPECT_END(resize_to_2(leave), kUnreachable, "Connection refused" + kNothing);
  cr_expect(leave.demands.empty());
}

Test(resize, leaves_the_requeue_to_the_launcher_when_slurmctld_is_silent) {
  SteerWorld world;
  world.at(1, [&world] { world.slurm.silent_calls = kForEver; });
  EXPECT_END(resize_to_2(world), kFailed, "Connection refused; its launcher will requeue it");
  cr_expect(world.asked() == "may_change_size", "%s", world.asked().c_str());
  cr_expect(world.passed() > 8 && world.passed() < 11, "before the launcher begins");
  world.slurm.silent_calls = 0;
  launcher_takes_over(world);
  cr_expect(world.slurm.record.state == SlurmState::running && world.slurm.record.gpus() == 2);
}

Test(resize, says_so_when_slurmctld_falls_silent_before_the_new_size) {
  SteerWorld world;
  world.slurm.before_call = [&world](const std::string& call) {
    if (call == "change" && world.slurm.changes.size() == 1) world.slurm.silent_calls = kForEver;
  };
  EXPECT_END(resize_to_2(world), kFailed,
             "Connection refused; it was requeued and restarts at its old size");
  cr_expect(world.slurm.record.restarts == 1 && world.slurm.record.requested_gpus() == 4);
}

Test(resize, goes_on_after_a_silence_at_any_moment) {
  for (double from = 1.0; from < 6; from += 0.1) {
    SteerWorld world;
    world.at(from, [&world] { world.slurm.silent_calls = kForEver; });
    world.at(from + 4, [&world] { world.slurm.silent_calls = 0; });
    EXPECT_END(resize_to_2(world), kOk, "");
    cr_expect(world.slurm.record.gpus() == 2 && !world.slurm.lost, "from %f", from);
    cr_expect(world.slurm.record.restarts == 1 && world.slurm.starts == 1, "from %f", from);
  }
}

Test(resize, asks_for_leave_before_it_stops_the_job) {
  SteerWorld world;
  world.slurm.refused_sizes = {2};
  EXPECT_END(resize_to_2(world), kRefused, "job 7 cannot have 2 GPUs: " + kRefusedSize + kNothing);
  cr_expect(world.demands.empty() && world.asked() == "may_change_size");
}

Test(resize, gives_back_the_old_size_when_the_new_one_is_refused_late) {
  SteerWorld world;
  world.at(1, [&world] { world.slurm.refused_sizes = {2}; });
  EXPECT_END(resize_to_2(world), kFailed,
             kRefusedSize + "; it was requeued and restarts at its old size");
  world.pass(20);
  cr_expect(world.slurm.record.state == SlurmState::running && world.slurm.record.gpus() == 4);
}

Test(resize, leaves_a_requeue_that_is_refused_to_the_launcher) {
  SteerWorld world;
  world.slurm.requeue_refused = true;
  EXPECT_END(resize_to_2(world), kFailed, kRefusedSize + "; its launcher will requeue it");
  cr_expect(world.asked() == "may_change_size requeue" && world.slurm.record.restarts == 0);
}

Test(resize, adds_its_size_to_the_requeue_of_another) {
  SteerWorld world;
  world.at(1, [&world] { (void)world.slurm.requeue_running(7); });
  EXPECT_END(resize_to_2(world), kOk, "");
  cr_expect(world.slurm.record.restarts == 1 && world.slurm.record.gpus() == 2);
}

Test(resize, stands_back_where_another_was_faster_than_the_stop) {
  for (const bool ends : {false, true}) {
    SteerWorld world;
    world.launchers = {{.words = {}, .dies_after = 0.3}};
    world.at(0.1, [&world, ends] {
      if (ends) world.slurm.record.state = SlurmState::completed;
      if (!ends) (void)world.slurm.requeue_running(7);
    });
    EXPECT_END(resize_to_2(world), kRefused, "job 7 was requeued or ended meanwhile" + kNothing);
    cr_expect(world.slurm.changes.empty() && world.demands.size() == 1);
  }
}

Test(resize, says_how_a_job_ended_that_stopped) {
  for (const SlurmState state :
       {SlurmState::completed, SlurmState::cancelled, SlurmState::timeout}) {
    SteerWorld world;
    world.at(1, [&world, state] { world.slurm.record.state = state; });
    EXPECT_END(resize_to_2(world), kFailed,
               fmt::format("Slurm did not requeue job 7, which is {}", slurm_state_name(state)));
    cr_expect(world.asked() == "may_change_size", "%s", world.asked().c_str());
  }
  SteerWorld gone;
  gone.at(1, [&gone] { gone.slurm.no_job = Error{ErrorKind::not_found, "no job 7"}; });
  EXPECT_END(resize_to_2(gone), kFailed, "no job 7");
}

Test(resize, says_how_a_job_ended_that_was_queued) {
  SteerWorld world;
  world.at(2, [&world] { world.slurm.record.state = SlurmState::cancelled; });
  EXPECT_END(resize_to_2(world), kFailed, "job 7 ended while it was queued: CANCELLED");
  SteerWorld gone;
  gone.at(2, [&gone] { gone.slurm.no_job = Error{ErrorKind::not_found, "no job 7"}; });
  EXPECT_END(resize_to_2(gone), kFailed, "no job 7: it ended while it was queued");
}

Test(resize, sees_that_a_later_run_is_none_of_its_own) {
  SteerWorld world;
  world.at(1, [&world] {
    world.slurm.record.restarts = 1;
    world.slurm.record.times.start = 1001;
  });
  EXPECT_END(resize_to_2(world), kFailed, "job 7 runs again, but with 4 GPUs instead of 2");
  cr_expect(world.asked() == "may_change_size" && world.passed() < 5);
}

Test(resize, waits_through_an_hour_in_the_queue) {
  SteerWorld world;
  world.time_limit = 7200;
  world.slurm.full = true;
  world.slurm.record.reason = "Resources";
  world.at(3600, [&world] { world.slurm.full = false; });
  const Resized done = resize(world, 2);
  EXPECT_END(done.end, kOk, "");
  cr_expect(done.report.requeue_s > 3590);
  cr_expect(world.slurm.calls.size() < 5000, "%zu: slurmctld has other things to do",
            world.slurm.calls.size());
  cr_expect(world.has_said("the job waits for GPUs (Resources)"));
}

Test(resize, says_at_each_end_of_time_what_becomes_of_the_job) {
  struct Case {
    double when;
    LauncherPart launcher;
    std::string state;
  };
  const std::string may_not = "the launcher may not have received the request";
  const std::string stops =
      "the job stops at its next checkpoint and then moves to 2 GPUs by itself";
  const std::string queued = "the job is pending, asks for 2 GPUs and continues when it starts";
  const LauncherPart slow{.words = {{0.1, R"({"event":"stopping","step":6})"}}};
  const Case cases[] = {
      {5, {.words = {}}, may_not}, {5, slow, stops}, {200, slow, stops}, {30, commits(), queued}};
  for (const Case& one : cases)
    for (const bool interrupted : {false, true}) {
      SteerWorld world;
      world.slurm.full = true;
      world.launchers = {one.launcher};
      (interrupted ? world.interrupted_at : world.time_limit) = one.when;
      const SteerEnd end = resize_to_2(world);
      if (interrupted)
        EXPECT_END(end, kInterrupted, "interrupted: " + one.state);
      else
        EXPECT_END(end, kTimedOut, "time is up: " + one.state);
      cr_expect(world.standing == std::pair(static_cast<int>(kTimedOut), one.state), "%s",
                world.standing.second.c_str());
      cr_expect(world.passed() < one.when + 3 && world.open_lines == 0);
    }
}

Test(resize, says_at_the_end_of_time_what_the_job_waits_for) {
  SteerWorld world;
  world.slurm.full = true;
  world.slurm.record.reason = "Priority";
  world.time_limit = 60;
  EXPECT_END(
      resize_to_2(world), kTimedOut,
      "time is up: the job is pending, asks for 2 GPUs and continues when it starts; it waits for "
      "jobs with a higher priority (Priority)");
}

Test(resize, puts_a_job_back_that_could_never_run) {
  SteerWorld world;
  world.slurm.full = true;
  world.slurm.record.reason = "BadConstraints";
  EXPECT_END(resize_to_2(world), kFailed,
             "Slurm says that job 7 can never run with 2 GPUs (BadConstraints); it asks for "
             "4 GPUs again and continues when it starts");
  cr_expect(world.slurm.record.requested_gpus() == 4 && world.passed() < 20);
}

Test(resize, warns_of_jobs_that_may_get_what_it_gives_up) {
  SteerWorld world;
  SlurmJob other = world.slurm.record;
  other.id = 8;
  other.state = SlurmState::pending;
  SlurmJob held = other;
  held.priority = 0;
  SlurmJob elsewhere = other;
  elsewhere.partition = "debug";
  world.slurm.others = {other, held, elsewhere};
  EXPECT_END(resize_to_2(world), kOk, "");
  cr_expect(world.said[0] ==
                "warning: 1 other job waits in partition main and may get the GPUs that this job "
                "gives up; this job may have to wait before it runs again",
            "%s", world.said[0].c_str());
}

Test(resize, sees_a_later_run_that_slurmctld_counts_the_same) {
  // It was killed before it had saved the number.
  SteerWorld world;
  world.at(1, [&world] { world.slurm.record.times.start = 1001; });
  EXPECT_END(resize_to_2(world), kFailed, "job 7 runs again, but with 4 GPUs instead of 2");
  cr_expect(world.passed() < 5 && !world.has_said("requeued; asked for 2 GPUs"));
}

Test(resize, moves_a_run_that_slurmctld_forgot_and_outlasts_it) {
  SteerWorld world;
  world.at(1, [&world] {
    world.slurm.record.state = SlurmState::pending;
    world.slurm.full = true;
  });
  world.slurm.before_call = [&world](const std::string& call) {
    if (call == "change") world.slurm.full = false;
  };
  EXPECT_END(resize_to_2(world), kOk, "");
  cr_expect(world.slurm.starts == 1 && world.slurm.record.gpus() == 2);
  cr_expect(world.slurm.record.times.start >= 1001 + requeue_clock::kAfterForgottenRun,
            "its nodes must have ended what they still run of it");
  cr_expect(world.slurm.changes.size() <= 2, "nothing to look at before that");
}
