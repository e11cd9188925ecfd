// SPDX-License-Identifier: Apache-2.0
// A halt, a resume and the wait for a job's next start without Slurm.
#include <criterion/criterion.h>
#include <sys/stat.h>

#include <string>

#include "launcher/record/event_log.h"
#include "launcher/steer/halt.h"
#include "launcher/steer/job_start.h"
#include "tests/unit/launcher/steer_support.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;

TestSuite(halt, .timeout = 20);
TestSuite(resume, .timeout = 20);
TestSuite(next_start, .timeout = 20);

namespace {

SteerEnd halt(SteerWorld& world) {
  Halt sequence(world.steering(), kJob, false);
  return SteerEnd(sequence.run());
}

SteerEnd resume(SteerWorld& world, std::optional<std::uint32_t> gpus = {}, bool wait = true) {
  Resume sequence(world.steering(), {kJob, gpus, wait});
  return SteerEnd(sequence.run());
}

/// One that was halted, and has been for long.
struct HeldWorld : SteerWorld {
  HeldWorld() {
    slurm.record.state = SlurmState::pending;
    slurm.record.priority = 0;
    slurm.record.restarts = 1;
    slurm.record.reason = "JobHeldUser";
  }
};

bool held(const SteerWorld& world) {
  return world.slurm.record.state == SlurmState::pending && world.slurm.record.priority == 0;
}

}  // namespace

Test(halt, stops_a_running_job_and_has_it_held) {
  SteerWorld world;
  Halt sequence(world.steering(), kJob, true);
  EXPECT_END(SteerEnd(sequence.run()), kOk, "");
  cr_expect(sequence.step() == 6u && sequence.commit_s() > 0.9 && !sequence.was_pending());
  cr_expect(world.asked() == "requeue_held", "%s", world.asked().c_str());
  cr_expect(world.demands[0] == R"({"cmd":"stop","from_scratch":true,"hold":true,"reason":"halt"})",
            "%s", world.demands[0].c_str());
  world.pass(300);
  cr_expect(held(world) && world.slurm.starts == 0);
}

Test(halt, holds_a_waiting_job_and_writes_it_down) {
  ScratchDir dir;
  SteerWorld world;
  world.slurm.full = true;
  world.slurm.record.state = SlurmState::pending;
  world.slurm.record.asked.work_dir = dir.path();
  const std::string store = dir.path() + "/bellows-7";
  cr_assert(mkdir(store.c_str(), 0700) == 0);
  Halt sequence(world.steering(), kJob, false);
  EXPECT_END(SteerEnd(sequence.run()), kOk, "");
  cr_expect(sequence.was_pending() && !sequence.was_held() && held(world));
  cr_expect(world.asked() == "change" && world.demands.empty() && world.said.empty());
  cr_assert(world.slurm.changes.size() == 1);
  cr_expect(world.slurm.changes[0].held == true && !world.slurm.changes[0].begin_time);
  const auto events = read_events(store, 7, 10);
  cr_assert(events.ok() && events->size() == 1);
  cr_expect(events->front().event == "HALTED" &&
            events->front().note == EventNote::halted_in_queue);
}

Test(halt, finds_a_held_job_as_it_should_be) {
  HeldWorld world;
  Halt sequence(world.steering(), kJob, false);
  EXPECT_END(SteerEnd(sequence.run()), kOk, "");
  cr_expect(sequence.was_held() && world.asked().empty() && world.demands.empty());
}

Test(halt, changes_nothing_where_it_cannot) {
  SteerWorld over;
  over.slurm.record.state = SlurmState::failed;
  EXPECT_END(halt(over), kRefused, "job 7 is over (FAILED)" + kNothing);
  SteerWorld silent;
  silent.slurm.record.state = SlurmState::pending;
  silent.slurm.full = true;
  silent.slurm.before_call = [&silent](const std::string& call) {
    if (call == "change") silent.slurm.silent_calls = kForEver;
  };
  EXPECT_END(halt(silent), kFailed, "Connection refused" + kNothing);
  SteerWorld refused;
  refused.launchers = {{.words = {{0.1, R"({"event":"error","error":"no checkpoint"})"}}}};
  EXPECT_END(halt(refused), kRefused, "the launcher refuses: no checkpoint" + kNothing);
  cr_expect(over.asked().empty() && refused.asked().empty() && !held(silent));
}

Test(halt, holds_what_another_has_requeued) {
  SteerWorld world;
  world.slurm.full = true;
  world.at(1, [&world] { (void)world.slurm.requeue_running(7); });
  EXPECT_END(halt(world), kOk, "");
  cr_expect(held(world) && world.slurm.record.restarts == 1);
}

Test(halt, leaves_the_rest_to_the_launcher) {
  SteerWorld silent;
  silent.at(1, [&silent] { silent.slurm.silent_calls = kForEver; });
  EXPECT_END(halt(silent), kFailed, "Connection refused; its launcher will requeue it");
  SteerWorld slow;
  slow.launchers = {{.words = {{0.1, R"({"event":"stopping","step":6})"}}}};
  slow.time_limit = 20;
  EXPECT_END(halt(slow), kTimedOut,
             "time is up: the job stops at its next checkpoint and is then held by itself");
  SteerWorld over;
  over.at(1, [&over] { over.slurm.record.state = SlurmState::cancelled; });
  EXPECT_END(halt(over), kFailed, "Slurm did not requeue job 7, which is CANCELLED");
}

Test(halt, does_not_take_a_later_run_for_a_held_one) {
  SteerWorld world;
  world.at(1, [&world] {
    world.slurm.record.restarts = 1;
    world.slurm.record.times.start = 1001;
  });
  EXPECT_END(halt(world), kFailed, "job 7 has since begun another run, and is not held");
  cr_expect(world.asked().empty() && !held(world));
}

Test(resume, releases_a_held_job_and_sees_it_start) {
  HeldWorld world;
  Resume sequence(world.steering(), {kJob, std::nullopt, true});
  EXPECT_END(SteerEnd(sequence.run()), kOk, "");
  cr_expect(world.slurm.record.state == SlurmState::running && world.slurm.record.gpus() == 4);
  cr_expect(sequence.from() == 4 && sequence.seconds() > 1 && sequence.seconds() < 4);
  cr_assert(!world.slurm.changes.empty());
  const SlurmJobChange& change = world.slurm.changes[0];
  cr_expect(change.held == false && change.begin_time == 1002 && !change.gpus);
  cr_expect(world.asked() == "change" && world.has_said("released; asked for 4 GPUs"));
}

Test(resume, at_another_size_asks_for_that_first) {
  HeldWorld world;
  EXPECT_END(resume(world, 2), kOk, "");
  cr_assert(world.slurm.changes.size() >= 2);
  cr_expect(world.slurm.changes[0].gpus == 2u && !world.slurm.changes[0].held);
  cr_expect(world.slurm.changes[1].held == false);
  cr_expect(world.slurm.record.gpus() == 2 && world.slurm.starts == 1);
}

Test(resume, without_a_wait_ends_with_the_release) {
  HeldWorld world;
  EXPECT_END(resume(world, {}, false), kOk, "");
  cr_expect(world.slurm.changes.size() == 1 && world.slurm.starts == 0 && !held(world));
  cr_expect(world.passed() < 0.1);
}

Test(resume, leaves_a_job_held_where_slurm_refuses) {
  HeldWorld size;
  size.slurm.refused_sizes = {2};
  EXPECT_END(resume(size, 2), kFailed, kRefusedSize + "; the job is still held");
  cr_expect(size.slurm.record.requested_gpus() == 4 && held(size));
  cr_expect(size.slurm.changes.back().gpus == 4u);
  HeldWorld silent;
  silent.slurm.before_call = [&silent](const std::string& call) {
    if (call == "change") silent.slurm.silent_calls = kForEver;
  };
  EXPECT_END(resume(silent), kFailed, "Connection refused; the job is still held");
  cr_expect(held(silent));
}

Test(resume, refuses_what_is_not_halted) {
  SteerWorld running;
  EXPECT_END(resume(running), kRefused, "job 7 is not halted (RUNNING)" + kNothing);
  SteerWorld waiting;
  waiting.slurm.full = true;
  waiting.slurm.record.state = SlurmState::pending;
  EXPECT_END(resume(waiting), kRefused, "job 7 is not halted (PENDING)" + kNothing);
  SteerWorld over;
  over.slurm.record.state = SlurmState::completed;
  EXPECT_END(resume(over), kRefused, "job 7 is over (COMPLETED)" + kNothing);
  HeldWorld admin;
  admin.slurm.record.reason = "JobHeldAdmin";
  EXPECT_END(resume(admin), kRefused,
             "job 7 is held by an administrator, who alone can release it" + kNothing);
  HeldWorld size;
  EXPECT_END(resume(size, 9), kRefused, "job 7 may hold 1-8 GPUs, not 9" + kNothing);
  for (const SteerWorld* world :
       std::initializer_list<const SteerWorld*>{&running, &waiting, &over, &admin, &size})
    cr_expect(world->asked().empty());
}

Test(resume, waits_until_slurm_has_cleaned_up) {
  HeldWorld world;
  world.slurm.record.completing = true;
  world.slurm.wait_until_done(1005);
  EXPECT_END(resume(world), kOk, "");
  cr_expect(world.slurm.changes[0].begin_time >= 1007 && !world.slurm.lost);
  HeldWorld stuck;
  stuck.slurm.record.completing = true;
  stuck.slurm.wait_until_done(1e9);
  stuck.time_limit = 30;
  EXPECT_END(resume(stuck), kTimedOut, "time is up: the job is still held");
  cr_expect(stuck.asked().empty() && stuck.passed() < 31);
}

Test(resume, looks_again_at_what_others_did_while_it_waited) {
  using Deed = std::function<void(FakeSlurm&)>;
  const std::pair<Deed, std::string> cases[] = {
      {[](FakeSlurm& slurm) {
         slurm.record.state = SlurmState::cancelled;
         slurm.record.completing = false;
       },
       "job 7 is not halted (CANCELLED)" + kNothing},
      {[](FakeSlurm& slurm) {
         slurm.record.priority = 100;
         slurm.record.completing = false;
       },
       "job 7 is not halted (PENDING)" + kNothing},
      {[](FakeSlurm& slurm) {
         slurm.no_job = Error{ErrorKind::not_found, "no job 7"};
       },
       "no job 7"}};
  for (const auto& [deed, sentence] : cases) {
    HeldWorld world;
    world.slurm.full = true;
    world.slurm.record.completing = true;
    world.slurm.wait_until_done(1e9);
    world.at(2, [&world, &deed = deed] { deed(world.slurm); });
    EXPECT_END(resume(world), kRefused, sentence);
    cr_expect(world.asked().empty() && world.passed() < 3);
  }
}

Test(resume, puts_a_size_back_that_can_never_run) {
  HeldWorld world;
  world.slurm.full = true;
  world.slurm.record.reason = "QOSMaxGRESPerJob";
  EXPECT_END(resume(world, 8), kFailed,
             "Slurm says that job 7 can never run with 8 GPUs (QOSMaxGRESPerJob); it asks for "
             "4 GPUs again and continues when it starts");
  cr_expect(world.slurm.record.requested_gpus() == 4);
  HeldWorld silent;
  silent.slurm.full = true;
  silent.slurm.record.reason = "BadConstraints";
  silent.slurm.before_call = [&silent](const std::string& call) {
    if (call == "change" && silent.slurm.changes.back().gpus == 4u) silent.slurm.silent_calls = 2;
  };
  EXPECT_END(
      resume(silent, 8), kFailed,
      "Slurm says that job 7 can never run with 8 GPUs (BadConstraints), and it could not be "
      "put back to 4 GPUs: Connection refused; 'bellows resize 7 4' tries again");
  cr_expect(silent.passed() > 5 && silent.passed() < 20, "it tries for five seconds");
}

Test(resume, at_its_old_size_waits_also_for_what_slurm_says_never_comes) {
  HeldWorld world;
  world.slurm.full = true;
  world.slurm.record.reason = "BadConstraints";
  world.at(40, [&world] { world.slurm.full = false; });
  EXPECT_END(resume(world), kOk, "");
  cr_expect(world.has_said("the job waits for resources that it can never get (BadConstraints)"));
}

Test(next_start, says_each_reason_once_and_in_words) {
  HeldWorld world;
  world.slurm.full = true;
  world.slurm.record.reason = "Resources";
  world.at(30, [&world] { world.slurm.record.reason = "None"; });
  world.at(40, [&world] { world.slurm.record.reason = "Resources"; });
  world.at(60, [&world] { world.slurm.record.reason = "JobHeldUser"; });
  world.at(90, [&world] { world.slurm.full = false; });
  EXPECT_END(resume(world), kOk, "");
  const std::vector<std::string> expected{
      "released; asked for 4 GPUs", "the job waits for GPUs (Resources)",
      "the job waits to be released, since somebody held it (JobHeldUser)"};
  cr_expect(world.said == expected, "%zu", world.said.size());
}

Test(next_start, has_words_for_slurms_reasons) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "(None)"},
      {"Whatever", "(Whatever)"},
      {"Dependency", "for the jobs that it depends on (Dependency)"},
      {"PartitionDown", "for its partition to be up (PartitionDown)"},
      {"ReqNodeNotAvail, Reserved for maintenance",
       "for nodes that are not available (ReqNodeNotAvail, Reserved for maintenance)"},
      {"MaxMemPerLimit", "for resources that it can never get (MaxMemPerLimit)"},
      {"QOSGrpGRES", "for other jobs to leave room below a limit of its QOS (QOSGrpGRES)"},
      {"AssocGrpGRES", "for other jobs to leave room below a limit of its account (AssocGrpGRES)"}};
  for (const auto& [reason, words] : cases) {
    SlurmJob job;
    job.reason = reason;
    const std::string text = wait_text(job);
    cr_expect(text == words, "%s", text.c_str());
  }
  for (const char* reason : {"BadConstraints", "PartitionNodeLimit", "QOSMaxCpuPerJobLimit"})
    cr_expect(never_runs(reason), "%s", reason);
  for (const char* reason : {"Resources", "QOSGrpGRES", "PartitionTimeLimit", ""})
    cr_expect(!never_runs(reason), "%s", reason);
}

Test(next_start, has_slurm_look_again_at_a_job_whose_time_has_come) {
  HeldWorld world;
  world.slurm.full = true;
  world.slurm.record.reason = "None";
  world.time_limit = 60;
  EXPECT_END(resume(world), kTimedOut,
             "time is up: the job is pending, asks for 4 GPUs and continues when it starts");
  int empty = 0;
  for (const SlurmJobChange& change : world.slurm.changes)
    if (!change.gpus && !change.begin_time && !change.held) ++empty;
  cr_expect(empty >= 6 && empty <= 12, "often at first, and then every ten seconds: %d", empty);
}

Test(next_start, never_pulls_the_start_while_the_job_completes) {
  SteerWorld world;
  world.slurm.batch_ends_after = 8;
  double pulled = 0;
  world.slurm.before_call = [&world, &pulled](const std::string& call) {
    if (call == "change" && world.slurm.changes.size() == 2) pulled = world.slurm.clock;
  };
  Resize sequence(world.steering(), {kJob, 2});
  EXPECT_END(SteerEnd(sequence.run()), kOk, "");
  cr_expect(pulled > 1009 && !world.slurm.lost && world.slurm.starts == 1, "%f", pulled);
}
