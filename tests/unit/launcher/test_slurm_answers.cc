// SPDX-License-Identifier: Apache-2.0
// What the launcher makes of slurmctld's answers, and of none.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "common/text.h"
#include "launcher/ranks/rank_processes.h"
#include "launcher/record/directory_claim.h"
#include "launcher/record/finished_file.h"
#include "launcher/record/fruitless_runs.h"
#include "launcher/record/lost_halt.h"
#include "launcher/run/owner_watch.h"
#include "launcher/slurm/reach.h"
#include "slurm/compat.h"
#include "slurm/error_kind.h"
#include "tests/unit/support/scratch_dir.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

using Time = std::chrono::steady_clock::time_point;

bool asks(const SlurmReach& reach) {
  std::vector<pollfd> fds;
  reach.add_poll(fds);
  return !fds.empty() && poll(fds.data(), fds.size(), 5000) > 0;
}

/// Asks at that time, and waits for the answer.
bool answers(SlurmReach& reach, const Status& status, Time now) {
  const auto look = [&status] { return status; };
  bool yes = reach.answers(look, now);
  cr_assert(!yes && asks(reach));
  while (!yes && asks(reach)) yes = reach.answers(look, now);
  return yes;
}

JobEvent event_of(const std::string& state, const std::string& cause) {
  return {1, 7, 0, 1, state, cause, 4, {}};
}

}  // namespace

Test(slurm_error, of_the_communication_is_not_a_verdict) {
  for (int code : {0, EPIPE, EINTR, ECONNRESET, ECONNREFUSED, ETIMEDOUT, ENOTCONN, EMFILE})
    cr_expect(slurm_error_kind(code) == ErrorKind::unavailable, "%d", code);
  for (int code :
       {int{SLURM_UNEXPECTED_MSG_ERROR}, int{SLURM_PROTOCOL_VERSION_ERROR},
        int{SLURM_COMMUNICATIONS_MISSING_SOCKET_ERROR},
        int{SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR},
        int{SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR}, int{ESLURM_PROTOCOL_INCOMPLETE_PACKET},
        int{SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT}, int{SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT},
        int{ESLURM_AUTH_CRED_INVALID}, int{ESLURM_AUTH_UNPACK}, int{ESLURM_IN_STANDBY_MODE},
        int{ESLURM_IN_STANDBY_USE_BACKUP}})
    cr_expect(slurm_error_kind(code) == ErrorKind::unavailable, "%d", code);
}

Test(slurm_error, of_slurmctld_is_one) {
  cr_expect(slurm_error_kind(ESLURM_INVALID_JOB_ID) == ErrorKind::not_found);
  cr_expect(slurm_error_kind(ESLURM_ACCESS_DENIED) == ErrorKind::denied);
  for (int code :
       {int{ESLURM_JOB_PENDING}, int{ESLURM_BATCH_ONLY}, int{ESLURM_INVALID_GRES}, SLURM_ERROR})
    cr_expect(slurm_error_kind(code) == ErrorKind::invalid, "%d", code);
}

Test(reason, is_a_word_for_every_number_of_slurm) {
  std::set<std::string> words;
  for (std::uint32_t reason = WAIT_NO_REASON; reason <= WAIT_RESV_DELETED; ++reason) {
    const std::string word = reason_word(reason);
    // Numbers that no release uses any more.
    if (parse_uint(word) || word == "InvalidReason") continue;
    words.insert(word);
  }
  cr_expect(words.size() > 150, "%zu", words.size());
  cr_expect(std::string(reason_word(WAIT_ARRAY_TASK_LIMIT)) == "JobArrayTaskLimit");
  cr_expect(std::string(reason_word(FAIL_BAD_CONSTRAINTS)) == "BadConstraints");
}

Test(slurm_reach, asks_once_a_second_and_tells_each_trouble_once, .timeout = 60) {
  SlurmReach reach;
  Time now{1h};
  const Error away{ErrorKind::unavailable, "away"};
  cr_expect(!answers(reach, away, now));
  cr_expect(reach.trouble() == "away" && !reach.trouble());
  cr_expect(!reach.answers([] { return Status(); }, now + 999ms) && !asks(reach), "too soon");
  cr_expect(!answers(reach, away, now + 1s));
  cr_expect(!reach.trouble(), "as before");
  cr_expect(!answers(reach, Error{ErrorKind::unavailable, "elsewhere"}, now + 2s));
  cr_expect(reach.trouble() == "elsewhere");
  cr_expect(answers(reach, {}, now + 3s));
  cr_expect(!answers(reach, away, now + 4s));
  cr_expect(reach.trouble() == "away");
  cr_expect(answers(reach, Error{ErrorKind::not_found, "no such job"}, now + 5s));
}

Test(slurm_reach, does_not_wait_for_an_answer, .timeout = 20) {
  SlurmReach reach;
  Time now{1h};
  const auto hangs = []() -> Status {
    pause();
    return {};
  };
  for (int i = 0; i < 100; ++i) cr_expect(!reach.answers(hangs, now + i * 1s));
}

Test(directory_claim, is_free_when_slurm_says_that_its_owner_is_over) {
  SlurmJob job, mine;
  job.id = 7;
  mine.id = 8;
  job.state = SlurmState::running;
  cr_expect(claim_on(job, mine) == Claim::taken);
  job.state = SlurmState::pending;
  cr_expect(claim_on(job, mine) == Claim::taken);
  job.state = SlurmState::completed;
  cr_expect(claim_on(job, mine) == Claim::free);
  cr_expect(claim_on(Error{ErrorKind::not_found, ""}, mine) == Claim::free);
  for (ErrorKind kind : {ErrorKind::unavailable, ErrorKind::invalid, ErrorKind::denied})
    cr_expect(claim_on(Error{kind, ""}, mine) == Claim::unknown, "a running owner would be fenced");
}

Test(directory_claim, of_the_same_job_goes_to_the_run_that_slurm_means) {
  SlurmJob mine;
  mine.id = 7;
  mine.state = SlurmState::running;
  mine.restarts = 2;
  mine.times.start = 1000;
  SlurmJob now = mine;
  cr_expect(claim_on(now, mine) == Claim::free);
  now.times.start = 1020;
  cr_expect(claim_on(now, mine) == Claim::late, "slurmctld lost a run, and counts it again");
  now.state = SlurmState::pending;
  cr_expect(claim_on(now, mine) == Claim::free, "when it may start");
  now = mine;
  now.restarts = 3;
  cr_expect(claim_on(now, mine) == Claim::late);
  now.restarts = 1;
  cr_expect(claim_on(now, mine) == Claim::free);
  cr_expect(claim_on(Error{ErrorKind::unavailable, ""}, mine) == Claim::unknown);
}

Test(directory_claim, knows_the_directory_of_an_older_job_with_its_id) {
  SlurmJob job;
  job.id = 7;
  job.times.submit = 2000;
  const auto owner = [](std::uint32_t id, std::uint64_t submitted, double time) {
    return DirectoryOwner{"", RunName{id, 0, submitted, ""}, time};
  };
  cr_expect(is_of_older_job(owner(7, 1999, 5000), job), "which ran until then");
  cr_expect(!is_of_older_job(owner(7, 2000, 1990), job), "the node's clock is behind");
  cr_expect(!is_of_older_job(owner(7, 2100, 2200), job), "a requeue that slurmctld lost");
  cr_expect(!is_of_older_job(owner(6, 1000, 1000), job));
  cr_expect(!is_of_older_job({}, job));
  cr_expect(is_of_older_job(owner(7, 0, 1999), job), "no SubmitTime is known");
  cr_expect(!is_of_older_job(owner(7, 0, 2000), job));
  job.restarts = 1;
  cr_expect(!is_of_older_job(owner(7, 1999, 1999), job), "SubmitTime is that of the requeue");
}

Test(directory_claim, sets_the_directory_of_an_older_job_aside) {
  ScratchDir dir;
  SlurmJob job;
  job.id = 7;
  job.times.submit = 2000;
  const std::string path = dir.path() + "/7", aside = path + ".before-2000";
  const auto owned = [&](const RunName& run) {
    std::filesystem::create_directory(path);
    std::ofstream(path + "/owner.json") << R"({"attempt":")" << run.attempt(1) << R"("})";
  };
  auto where = set_aside_older(path, job);
  cr_expect(where.ok() && !*where, "there is none");
  owned(RunName::make(7, 3, 2000));
  where = set_aside_older(path, job);
  cr_expect(where.ok() && !*where, "it is its own");
  owned(RunName::make(7, 3, 1500));
  where = set_aside_older(path + "/", job);
  cr_assert(where.ok() && *where == aside);
  cr_expect(!std::filesystem::exists(path) && std::filesystem::exists(aside + "/owner.json"));
  owned(RunName::make(7, 0, 1500));
  where = set_aside_older(path, job);
  cr_assert(!where.ok(), "the name is taken");
  cr_expect(where.error().kind == ErrorKind::denied && has(where.error().text, "--checkpoint-dir"));
  cr_expect(std::filesystem::exists(path + "/owner.json"));
}

Test(finished_file, is_withdrawn_by_whoever_left_it) {
  ScratchDir dir;
  const RunName run{7, 0, 1000, "aa"}, later{7, 1, 2000, "bb"};
  FinishedFile launcher(dir.path(), run);
  cr_expect(launcher.path() == dir.path() + "/finished-7.0.1000.aa");
  cr_expect(!launcher.found() && launcher.leave() && launcher.found() == launcher.path());
  FinishedFile next(dir.path(), later);
  cr_expect(next.found_of(run) == launcher.path(), "of a launcher that was killed");
  FinishedFile again(dir.path(), run);
  cr_expect(again.leave());
  again.withdraw();
  cr_expect(launcher.found().has_value(), "not its own");
  launcher.withdraw();
  cr_expect(!launcher.found() && !next.found_of(run));
  cr_expect(!FinishedFile("/nonexistent", run).leave());
}

Test(finished_file, of_another_run_is_ignored) {
  ScratchDir dir;
  const RunName cut_off{7, 0, 1000, "aa"}, before{7, 0, 1000, "bb"}, run{7, 0, 1000, "cc"};
  cr_assert(FinishedFile(dir.path(), cut_off).leave());
  FinishedFile file(dir.path(), run);
  cr_expect(!file.found() && !file.found_of(before));
  close(open((dir.path() + "/finished-7").c_str(), O_WRONLY | O_CREAT, 0600));
  cr_expect(file.found() == dir.path() + "/finished-7", "that of all runs");
}

Test(finished_file, of_an_older_job_is_dropped) {
  ScratchDir dir;
  const std::string path = dir.path() + "/finished-7";
  close(open(path.c_str(), O_WRONLY | O_CREAT, 0600));
  FinishedFile file(dir.path(), RunName{7, 0, 1000, "aa"});
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  cr_assert(utimensat(AT_FDCWD, path.c_str(), old, 0) == 0);
  file.drop_older(1000);
  cr_expect(file.found().has_value(), "of a run that slurmctld lost");
  file.drop_older(1001);
  cr_expect(!file.found());
}

Test(rank_processes, of_one_attempt_are_killed, .timeout = 60) {
  const auto start = [](const char* variable, const char* job) {
    const pid_t pid = fork();
    if (pid == 0) {
      const char* const environment[] = {"A=b", job, variable, nullptr};
      execle("/bin/sleep", "sleep", "50", nullptr, environment);
      _exit(1);
    }
    // Until the program runs, the environment is still this one's.
    for (std::string text; text.find(variable) == std::string::npos; usleep(1000)) {
      std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
      text.assign(std::istreambuf_iterator<char>(file), {});
    }
    return pid;
  };
  const pid_t rank = start("BELLOWS_ATTEMPT=7.0.1000.aa.1", "SLURM_JOB_ID=7");
  const pid_t other = start("BELLOWS_ATTEMPT=7.0.1000.aa.12", "SLURM_JOB_ID=7");
  const pid_t submitted = start("BELLOWS_ATTEMPT=7.0.1000.aa.1", "SLURM_JOB_ID=8");
  kill_ranks_here("7.0.1000.aa.1");
  int status = 0;
  cr_expect(waitpid(rank, &status, 0) == rank && WIFSIGNALED(status) &&
            WTERMSIG(status) == SIGKILL);
  for (const pid_t spared : {other, submitted}) {
    cr_expect(waitpid(spared, &status, WNOHANG) == 0);
    kill(spared, SIGKILL);
    cr_expect(waitpid(spared, &status, 0) == spared);
  }
}

Test(owner_watch, looks_at_once_and_then_now_and_again, .timeout = 60) {
  OwnerWatch watch;
  Time now{1h};
  const auto answer = [&](const char* name) {
    const OwnerWatch::Look look = [name] { return std::string(name); };
    auto owner = watch.owner(look, now);
    for (std::vector<pollfd> fds; !owner; owner = watch.owner(look, now), fds.clear()) {
      watch.add_poll(fds);
      if (fds.empty()) return std::string("-");
      poll(fds.data(), fds.size(), 10000);
    }
    return *owner;
  };
  cr_expect(answer("a") == "a");
  cr_expect(answer("b") == "-", "too soon");
  now += OwnerWatch::kEvery;
  cr_expect(answer("b") == "b");
  watch.begin();
  cr_expect(answer("c") == "c");
}

Test(owner_watch, does_not_wait_for_a_file_system_that_hangs, .timeout = 20) {
  OwnerWatch watch;
  const auto hangs = [] {
    pause();
    return std::string();
  };
  for (int i = 0; i < 100; ++i) cr_expect(!watch.owner(hangs, Time{1h} + i * 1s));
}

namespace {

JobEvent noted(const std::string& state, EventNote note) {
  JobEvent event = event_of(state, "");
  event.note = note;
  return event;
}

const JobEvent kAsked = noted("CHECKPOINTING", EventNote::halting);

}  // namespace

Test(lost_halt, is_one_that_nothing_came_of) {
  std::vector<JobEvent> events = {event_of("QUEUED", "submitted"),
                                  noted("CHECKPOINTING", EventNote::saving)};
  cr_expect(!halt_was_lost(events, 1));
  events.push_back(kAsked);
  events.push_back(noted("PROCESSING", EventNote::committed));
  cr_expect(halt_was_lost(events, 1), "its launcher was killed");
  JobEvent requeued = event_of("QUEUED", "requeued");
  requeued.restart = 1;
  requeued.attempt = 0;
  events.push_back(requeued);
  cr_expect(halt_was_lost(events, 1), "the next one begins");
  for (JobEvent end :
       {event_of("HALTED", kHalt), event_of("QUEUED", "preemption"),
        event_of("COMPLETED", "the program has finished"), event_of("DEPLOYING", "restart 1"),
        noted("PROCESSING", EventNote::ranks_go_on)}) {
    events.push_back(end);
    cr_expect(!halt_was_lost(events, 1), "%s %s", end.event.c_str(), end.cause.c_str());
    events.back() = kAsked;
  }
  requeued.note = EventNote::resumed;
  events.push_back(requeued);
  cr_expect(!halt_was_lost(events, 1), "resumed");
  events.back() = event_of("QUEUED", "submitted");
  events.back().attempt = 0;
  cr_expect(!halt_was_lost(events, 1), "of an older job");
}

Test(lost_halt, is_not_read_out_of_what_people_read) {
  cr_expect(!halt_was_lost({event_of("CHECKPOINTING", kHalt)}, 1));
  cr_expect(halt_was_lost({kAsked, event_of("PROCESSING", "no; the ranks continue")}, 1));
  cr_expect(fruitless_runs({event_of("QUEUED", "time limit, without a new checkpoint")}) == 0);
}

Test(lost_halt, holds_the_next_run_only) {
  JobEvent asked = kAsked;
  asked.restart = 3;
  cr_expect(halt_was_lost({asked}, 4));
  cr_expect(halt_was_lost({asked}, 3), "slurmctld forgot the run");
  cr_expect(!halt_was_lost({asked}, 5), "no room to write down that it was held: released in vain");
  cr_expect(!halt_was_lost({asked}, 2), "of an older job");
}

Test(lost_halt, is_over_when_somebody_steers_the_job) {
  ScratchDir dir;
  SlurmJob job;
  job.id = 7;
  job.restarts = 1;
  job.asked.work_dir = dir.path();
  const std::string checkpoints = dir.path() + "/bellows-7";
  cr_expect(record_halt_of_waiting(job).ok() && record_resume(job, 4).ok());
  cr_assert(mkdir(checkpoints.c_str(), 0700) == 0, "none of them made it");
  auto log = EventLog::open(checkpoints);
  cr_assert(log.ok());
  for (const auto& steer :
       {record_halt_of_waiting, +[](const SlurmJob& held) { return record_resume(held, 4); }}) {
    cr_assert(log->append(kAsked).ok());
    auto events = read_events(checkpoints, 7, 100);
    cr_assert(events.ok() && halt_was_lost(*events, 1));
    cr_assert(steer(job).ok());
    events = read_events(checkpoints, 7, 100);
    cr_assert(events.ok() && !halt_was_lost(*events, 1), "%s", events->back().event.c_str());
    cr_expect(events->back().restart == 1 && events->back().attempt == 0);
  }
}

Test(fruitless_runs, are_counted_up_to_the_newest_event) {
  const auto fruitless = noted("QUEUED", EventNote::fruitless);
  std::vector<JobEvent> events = {fruitless, event_of("QUEUED", "submitted"), fruitless};
  cr_expect(fruitless_runs(events) == 2);
  events.push_back(noted("PROCESSING", EventNote::committed));
  cr_expect(fruitless_runs(events) == 0);
  events.push_back(fruitless);
  cr_expect(fruitless_runs(events) == 1);
  events.push_back(event_of("STORING", "the program's own checkpoint: resize"));
  events.push_back(event_of("QUEUED", "resize"));
  cr_expect(fruitless_runs(events) == 0);
}
