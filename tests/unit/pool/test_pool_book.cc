// SPDX-License-Identifier: Apache-2.0
// Who a pool's members are, and what is asked of Slurm for its size.
#include <criterion/criterion.h>

#include <unistd.h>

#include <filesystem>

#include "pool/keeper/job_names.h"
#include "pool/keeper/size_choice.h"
#include "pool/keeper/step_plan.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::pool;
using namespace std::chrono_literals;

namespace {

constexpr Clock::time_point kStart{1h};

SlurmJob job_of(std::uint32_t id, SlurmState state) {
  SlurmJob job;
  job.id = id;
  job.state = state;
  return job;
}

MemberReport ready_report(std::uint32_t job, std::uint64_t incarnation = 1) {
  MemberReport report;
  report.job = job;
  report.incarnation = incarnation;
  report.address = "n1:8000";
  report.ready = true;
  return report;
}

/// A book with so many members that are ready, 1 and up.
MemberBook ready_book(std::uint32_t members) {
  MemberBook book;
  for (std::uint32_t job = 1; job <= members; ++job) {
    book.submitted(job, kStart);
    cr_assert(book.reported(ready_report(job), kStart + 2s));
  }
  return book;
}

Phase phase_of(const MemberBook& book, std::uint32_t job) { return book.members().at(job).phase; }

}  // namespace

Test(pool_book, a_member_is_pending_starting_ready_and_its_start_is_timed_once) {
  MemberBook book;
  book.submitted(7, kStart);
  cr_expect(phase_of(book, 7) == Phase::pending);
  book.listed({job_of(7, SlurmState::running)}, kStart + 1s);
  cr_expect(phase_of(book, 7) == Phase::starting);
  cr_expect(book.reported(ready_report(7), kStart + 3s));
  cr_expect(phase_of(book, 7) == Phase::ready);
  auto report = ready_report(7);
  report.ready = false;
  cr_expect(book.reported(report, kStart + 4s));
  cr_expect(phase_of(book, 7) == Phase::starting);
  cr_expect(book.reported(ready_report(7), kStart + 5s));
  const auto times = book.take_start_times();
  cr_assert_eq(times.size(), 1);
  cr_expect_float_eq(times[0], 3, 1e-9);
  cr_expect(book.take_start_times().empty());
}

Test(pool_book, nobody_is_a_member_by_saying_so) {
  MemberBook book;
  cr_expect_not(book.reported(ready_report(9), kStart));
  cr_expect(book.members().empty());
}

Test(pool_book, what_a_predecessor_submitted_is_known_from_slurm) {
  MemberBook book;
  book.listed({job_of(3, SlurmState::running), job_of(4, SlurmState::pending)}, kStart);
  cr_expect_eq(book.staying(), 2);
  cr_expect(book.reported(ready_report(3), kStart));
  cr_expect_eq(book.count(Phase::ready), 1);
}

Test(pool_book, a_job_that_slurm_does_not_list_yet_is_not_lost) {
  MemberBook book;
  book.submitted(7, kStart);
  book.listed({}, kStart + 5s);
  cr_expect_eq(book.staying(), 1);
  book.listed({}, kStart + 11s);
  cr_expect_eq(book.staying(), 0);
}

Test(pool_book, a_job_that_ended_or_went_is_no_member_any_more) {
  MemberBook book = ready_book(2);
  book.listed({job_of(1, SlurmState::failed), job_of(2, SlurmState::running)}, kStart + 3s);
  cr_expect(phase_of(book, 1) == Phase::ended);
  cr_expect_not(book.reported(ready_report(1), kStart + 4s), "its agent's last words");
  book.listed({job_of(1, SlurmState::failed)}, kStart + 5s);
  cr_expect(phase_of(book, 2) == Phase::ended);
  book.listed({}, kStart + 6s);
  cr_expect(book.members().empty());
}

Test(pool_book, a_job_that_slurm_requeued_takes_no_calls) {
  MemberBook book = ready_book(1);
  book.listed({job_of(1, SlurmState::pending)}, kStart + 3s);
  cr_expect(phase_of(book, 1) == Phase::pending);
  cr_expect_not(book.members().at(1).report.has_value());
}

Test(pool_book, an_older_incarnation_changes_nothing) {
  MemberBook book = ready_book(1);
  auto report = ready_report(1, 5);
  report.address = "n2:1";
  cr_expect(book.reported(report, kStart + 3s));
  cr_expect_not(book.reported(ready_report(1, 4), kStart + 4s));
  cr_expect_eq(book.members().at(1).report->address, "n2:1");
  book.left(1, 4);
  cr_expect(book.members().at(1).attended);
  book.left(1, 5);
  cr_expect_not(book.members().at(1).attended);
}

Test(pool_book, one_whose_agent_is_away_for_long_takes_no_calls_until_it_is_back) {
  MemberBook book = ready_book(1);
  book.left(1, 1);
  book.tick(kStart + 4s, kStart);
  cr_expect(phase_of(book, 1) == Phase::ready);
  book.tick(kStart + 6s, kStart);
  cr_expect(phase_of(book, 1) == Phase::starting);
  cr_expect(book.reported(ready_report(1), kStart + 9s));
  cr_expect(phase_of(book, 1) == Phase::ready);
  cr_expect_eq(book.take_start_times().size(), 1);
}

Test(pool_book, callers_are_told_of_changes_only) {
  MemberBook book = ready_book(1);
  const auto version = book.version();
  cr_expect(book.reported(ready_report(1), kStart + 3s));
  cr_expect_eq(book.version(), version);
  auto report = ready_report(1);
  report.address = "n1:9";
  cr_expect(book.reported(report, kStart + 3s));
  cr_expect_gt(book.version(), version);
}

Test(pool_steps, what_lacks_is_submitted) {
  const auto plan = plan_steps(ready_book(2), 5, 8, {}, kStart);
  cr_expect_eq(plan.submit, 3);
  cr_expect(plan.drain.empty() && plan.cancel.empty());
}

Test(pool_steps, surplus_is_drained_in_the_order_given) {
  const auto plan = plan_steps(ready_book(4), 2, 8, {3, 1, 4, 2}, kStart);
  cr_expect_eq(plan.submit, 0);
  cr_expect(plan.drain == std::vector<std::uint32_t>({3, 1}));
  cr_expect(plan.cancel.empty());
}

Test(pool_steps, a_member_is_never_cancelled_before_it_was_ready) {
  MemberBook book = ready_book(1);
  book.submitted(2, kStart);
  book.submitted(3, kStart);
  const auto plan = plan_steps(book, 1, 8, {3, 2, 1}, kStart);
  cr_expect(plan.cancel.empty());
  cr_expect(plan.drain.empty(), "it is the only one that works");
}

Test(pool_steps, above_the_most_also_those_go_that_never_began_the_youngest_first) {
  MemberBook book = ready_book(1);
  for (std::uint32_t job = 2; job <= 5; ++job) book.submitted(job, kStart + 1s * job);
  const auto plan = plan_steps(book, 3, 3, {}, kStart);
  cr_expect(plan.cancel == std::vector<std::uint32_t>({5, 4}));
  book.cancelled(5, kStart);
  cr_expect(plan_steps(book, 3, 3, {}, kStart).cancel == std::vector<std::uint32_t>({4}));
}

Test(pool_steps, what_nobody_asked_for_goes_before_it_begins) {
  MemberBook book;
  book.listed({job_of(1, SlurmState::running)}, kStart);
  cr_assert(book.reported(ready_report(1), kStart));
  cr_expect_eq(plan_steps(book, 2, 8, {}, kStart).submit, 1);
  book.submitted(3, kStart + 1s);
  // Slurm was late with what the keeper before this one had asked for.
  const std::vector<SlurmJob> jobs = {job_of(1, SlurmState::running),
                                      job_of(2, SlurmState::pending),
                                      job_of(3, SlurmState::pending)};
  book.listed(jobs, kStart + 1s);
  cr_expect(plan_steps(book, 2, 8, {}, kStart + 1s).cancel == std::vector<std::uint32_t>({2}));
  cr_expect(plan_steps(book, 3, 8, {}, kStart + 1s).cancel.empty(), "it is of use now");
  cr_expect(plan_steps(book, 1, 8, {}, kStart + 1s).cancel == std::vector<std::uint32_t>({2}),
            "and not the one that was asked for");
  cr_assert(book.reported(ready_report(2), kStart + 2s));
  const auto plan = plan_steps(book, 1, 8, {2, 1}, kStart + 2s);
  cr_expect(plan.cancel.empty() && plan.drain == std::vector<std::uint32_t>({2}));
}

Test(pool_steps, what_is_there_when_a_keeper_begins_is_not_cancelled) {
  MemberBook book;
  book.listed({job_of(1, SlurmState::pending), job_of(2, SlurmState::pending)}, kStart);
  book.listed({job_of(1, SlurmState::pending), job_of(2, SlurmState::pending)}, kStart + 1s);
  cr_expect(plan_steps(book, 1, 8, {}, kStart + 1s).cancel.empty());
}

Test(pool_steps, one_that_does_not_end_in_its_time_is_cancelled_until_it_does) {
  MemberBook book = ready_book(1);
  book.drain(1, kStart + 30s, kStart);
  cr_expect_eq(plan_steps(book, 0, 8, {}, kStart + 40s).cancel.size(), 0);
  cr_expect_eq(plan_steps(book, 0, 8, {}, kStart + 46s).cancel.size(), 1);
  book.cancelled(1, kStart + 46s);
  cr_expect_eq(plan_steps(book, 0, 8, {}, kStart + 50s).cancel.size(), 0);
  cr_expect_eq(plan_steps(book, 0, 8, {}, kStart + 57s).cancel.size(), 1,
               "scancel may have failed");
}

Test(pool_steps, one_that_drains_is_replaced) {
  MemberBook book = ready_book(2);
  book.drain(1, kStart + 30s, kStart);
  cr_expect_eq(plan_steps(book, 2, 8, {}, kStart).submit, 1);
}

Test(pool_steps, a_script_that_fails_at_once_is_not_run_again_and_again) {
  MemberBook book;
  Clock::time_point now = kStart;
  std::uint32_t submitted = 0;
  for (int second = 0; second < 600; ++second, now += 1s) {
    const std::uint32_t submit = plan_steps(book, 4, 8, {}, now).submit;
    std::vector<SlurmJob> jobs;
    for (std::uint32_t i = 0; i < submit; ++i) {
      book.submitted(++submitted, now);
      jobs.push_back(job_of(submitted, SlurmState::failed));
    }
    book.listed(jobs, now);
  }
  cr_expect_leq(submitted, 20, "%u", submitted);
  book.submitted(1000, now);
  cr_assert(book.reported(ready_report(1000), now));
  cr_expect_eq(plan_steps(book, 4, 8, {}, now).submit, 3, "one that works ends the pause");
}

Test(pool_book, a_member_that_drains_tells_the_next_keeper) {
  MemberBook book;
  book.listed({job_of(1, SlurmState::running)}, kStart);
  auto report = ready_report(1);
  report.draining = true;
  cr_assert(book.reported(report, kStart + 1s));
  cr_expect(phase_of(book, 1) == Phase::draining);
  cr_expect_eq(plan_steps(book, 1, 8, {}, kStart + 1s).submit, 1, "another takes its place");
}

Test(pool_book, a_member_that_is_silent_for_long_is_replaced) {
  MemberBook book = ready_book(2);
  book.left(1, 1);
  for (auto now = kStart; now < kStart + 70s; now += 1s) book.tick(now, kStart);
  cr_expect(phase_of(book, 1) == Phase::draining);
  cr_expect(phase_of(book, 2) == Phase::ready, "its connection stands");
  cr_expect_eq(plan_steps(book, 2, 8, {}, kStart + 70s).submit, 1);
  cr_expect_eq(plan_steps(book, 2, 8, {}, kStart + 90s).cancel.size(), 1);
}

Test(pool_book, nobody_is_lost_by_silence_while_the_keeper_was_cut_off) {
  MemberBook book = ready_book(2);
  book.left(1, 1);
  book.left(2, 1);
  const auto back = kStart + 300s;
  for (auto now = kStart; now < back; now += 1s) book.tick(now, now);
  book.tick(back + 50s, back);
  cr_expect_eq(book.count(Phase::draining), 0);
  cr_assert(book.reported(ready_report(2), back + 50s));
  book.tick(back + 61s, back);
  cr_expect(phase_of(book, 1) == Phase::draining, "it was not cut off itself");
  cr_expect(phase_of(book, 2) == Phase::ready);
}

Test(pool_book, a_job_that_runs_again_is_a_member_again) {
  MemberBook book = ready_book(1);
  book.listed({job_of(1, SlurmState::failed)}, kStart + 3s);
  book.listed({job_of(1, SlurmState::running)}, kStart + 4s);
  cr_expect_eq(book.staying(), 1);
  cr_expect(book.reported(ready_report(1, 2), kStart + 5s));
  cr_expect(phase_of(book, 1) == Phase::ready);
}

Test(pool_book, the_start_of_a_member_that_was_there_before_is_known_from_slurm_and_itself) {
  constexpr std::time_t kSubmit = 1'700'000'000;
  const auto times_of = [](std::uint64_t ready_ms, std::time_t submit) {
    SlurmJob job = job_of(3, SlurmState::running);
    job.times.submit = submit;
    job.times.now = kSubmit + 100;
    MemberReport report = ready_report(3);
    report.ready_ms = ready_ms;
    MemberBook book;
    book.listed({job}, kStart);
    cr_assert(book.reported(report, kStart + 1s));
    return book.take_start_times();
  };
  cr_expect((times_of(kSubmit * 1000 + 8500, kSubmit) == std::vector<double>{8.5}));
  cr_expect((times_of(kSubmit * 1000 - 500, kSubmit) == std::vector<double>{0}),
            "the node's clock is late");
  cr_expect(times_of(0, kSubmit).empty());
  cr_expect(times_of(kSubmit * 1000, 0).empty());
  cr_expect(times_of(UINT64_MAX, kSubmit).empty(), "it lies");
  cr_expect(times_of((kSubmit + 111) * 1000, kSubmit).empty(), "it lies");
}

Test(pool_votes, count_once_and_while_they_are_new) {
  PoolPolicy policy;
  policy.max = 20;
  policy.burst_interval = 60s;
  SizeChoice choice(policy);
  MemberBook book = ready_book(4);
  const auto wanted_after = [&](std::chrono::seconds when, std::uint32_t job,
                                std::uint32_t sequence, std::chrono::milliseconds age) {
    MemberReport report = ready_report(job);
    report.vote = 1;
    report.vote_sequence = sequence;
    report.vote_age = age;
    choice.take(report, kStart + when);
    return choice.wish(book, {}, kStart + when).wanted;
  };
  cr_expect_eq(wanted_after(0s, 1, 1, 1s), 4, "a keeper before this one may have counted it");
  cr_expect_eq(wanted_after(10s, 1, 2, 1s), 5);
  cr_expect_eq(wanted_after(12s, 1, 2, 3s), 5, "the same one again");
  cr_expect_eq(wanted_after(14s, 2, 1, 5s), 5, "one of long ago");
  cr_expect_eq(wanted_after(16s, 1, 3, 0s), 5, "too soon");
  cr_expect_eq(wanted_after(100s, 1, 3, 2s), 5, "and then it does not count later");
  cr_expect_eq(wanted_after(100s, 1, 4, 0s), 5, "one is starting already");
  book.submitted(5, kStart + 100s);
  cr_assert(book.reported(ready_report(5), kStart + 101s));
  cr_expect_eq(wanted_after(170s, 1, 5, 0s), 6);
}

Test(pool_book, what_ended_before_a_keeper_began_is_no_failure) {
  std::vector<SlurmJob> ended;
  for (std::uint32_t job = 1; job <= 10; ++job) ended.push_back(job_of(job, SlurmState::completed));
  MemberBook book;
  book.listed(ended, kStart);
  cr_expect_eq(book.fruitless(), 0);
  cr_expect_eq(plan_steps(book, 2, 4, {}, kStart).submit, 2);
  // An administrator requeues one of them.
  ended[0].state = SlurmState::running;
  book.listed(ended, kStart + 1s);
  cr_expect(phase_of(book, 1) == Phase::starting);
}

Test(pool_jobs, are_those_with_their_output_in_the_pool_s_directory) {
  const ScratchDir folder;
  const std::string dir = folder.path() + "/web";
  const std::string other = folder.path() + "/other/web";
  for (const std::string& one : {dir, other}) std::filesystem::create_directories(one + "/log");
  cr_assert_eq(symlink(folder.path().c_str(), (folder.path() + "/home").c_str()), 0);
  const auto of_pool = [&dir](const std::string& output) {
    SlurmJob job;
    job.output = output;
    return is_of_pool_in(dir, job);
  };
  cr_expect(of_pool(dir + "/log/12.out"));
  cr_expect(of_pool(folder.path() + "/home/web/log/12.out"), "by another path");
  cr_expect_not(of_pool(other + "/log/12.out"), "a pool of that name in another folder");
  for (const std::string& output : {std::string(), std::string("/"), dir + "/12.out", dir})
    cr_expect_not(of_pool(output), "%s", output.c_str());
  std::filesystem::remove_all(dir);
  cr_expect(of_pool(dir + "/log/12.out"), "also when it is gone");
}
