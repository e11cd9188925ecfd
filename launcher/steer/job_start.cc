// SPDX-License-Identifier: Apache-2.0
#include "launcher/steer/job_start.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>

#include "common/text.h"
#include "slurm/requeue.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

constexpr auto kPoll = 50ms;
constexpr double kPollFast = 15;  // seconds
constexpr auto kPollLater = 1000ms;
constexpr double kSayWaitingAfter = 5;
/// Seconds of slurmctld to a start time.
constexpr std::time_t kNotWorthSaying = 4;
/// Slurm may say it of nodes that have yet to register; so it must say it again.
constexpr int kMostNevers = 3;
/// The default of batch_sched_delay is 3 s.
constexpr double kPlacedWithin = 12;

struct Wait {
  std::string_view reason;
  std::string_view words;
};
constexpr Wait kWaits[] = {
    {"Resources", "for GPUs"},
    {"Priority", "for jobs with a higher priority"},
    {"Dependency", "for the jobs that it depends on"},
    {"JobArrayTaskLimit",
     "for other tasks of its array, since only a limited number of them may run at once"},
    {"JobHeldUser", "to be released, since somebody held it"},
    {"JobHeldAdmin", "to be released by an administrator"},
    {"ReqNodeNotAvail", "for nodes that are not available"},
    {"PartitionDown", "for its partition to be up"},
    {"PartitionInactive", "for its partition to be up"},
    {"Licenses", "for licenses"},
    {"Reservation", "for its reservation"},
};

}  // namespace

bool never_runs(const std::string& reason) {
  for (const char* word : {"BadConstraints", "PartitionNodeLimit", "MaxMemPerLimit"})
    if (reason == word) return true;
  // Limits of a single job: QOSMaxGRESPerJob, AssocMaxCpuPerJobLimit.
  return reason.ends_with("PerJob") || reason.ends_with("PerJobLimit");
}

std::string wait_text(const SlurmJob& job) {
  const std::string slurms = job.reason.empty() ? "None" : job.reason;
  if (job.reason == "BeginTime" && job.times.start > 0)
    return fmt::format("until {:%H:%M:%S} ({})", fmt::localtime(job.times.start), slurms);
  for (const Wait& wait : kWaits)
    if (job.reason.starts_with(wait.reason)) return fmt::format("{} ({})", wait.words, slurms);
  if (never_runs(job.reason))
    return fmt::format("for resources that it can never get ({})", slurms);
  if (job.reason.starts_with("Assoc") || job.reason.starts_with("QOS"))
    return fmt::format("for other jobs to leave room below a limit of its {} ({})",
                       job.reason.starts_with("QOS") ? "QOS" : "account", slurms);
  return fmt::format("({})", slurms);
}

std::optional<CommandFailure> JobStart::run() {
  begun_ = steering_.time.now();
  const std::string queued = fmt::format(
      "the job is pending, asks for {} and continues when it starts", counted(gpus_, "GPU"));
  steering_.standing(kTimedOut, queued);
  while (true) {
    if (steering_.interrupted() || steering_.out_of_time())
      return steering_.stopped_waiting(
          said_.empty() ? queued : fmt::format("{}; it waits {}", queued, wait_text(found_)));
    // A job may wait for others for a long time, and slurmctld should not be asked about it too
    // often.
    steering_.time.sleep(seconds_ < kPollFast ? kPoll : kPollLater);
    seconds_ = std::chrono::duration<double>(steering_.time.now() - begun_).count();
    auto job = steering_.slurm.job(job_.id);
    if (!job && job.error().kind == ErrorKind::not_found)
      return CommandFailure{kFailed, job.error().text + ": it ended while it was queued"};
    if (!job) continue;  // says nothing about the job
    found_ = *job;
    auto failure = look(*job);
    if (failure || running_) return failure;
  }
}

std::optional<CommandFailure> JobStart::see_placed() {
  begun_ = steering_.time.now();
  steering_.standing(kTimedOut, fmt::format("the job waits, now for {}", counted(gpus_, "GPU")));
  while (seconds_ < kPlacedWithin && !steering_.interrupted() && !steering_.out_of_time()) {
    auto job = steering_.slurm.job(job_.id);
    seconds_ = std::chrono::duration<double>(steering_.time.now() - begun_).count();
    if (job) {
      found_ = *job;
      if (auto failure = look_for_never(*job)) return failure;
      const bool unseen = job->reason.empty() || job->reason == "None" || nevers_ > 0;
      if (job->state != SlurmState::pending || !unseen) return std::nullopt;
    }
    steering_.time.sleep(kPoll);
  }
  return std::nullopt;
}

std::optional<CommandFailure> JobStart::look(const SlurmJob& now) {
  if (now.state == SlurmState::running && now.restarts >= least_restarts_) {
    seconds_ = std::chrono::duration<double>(steering_.time.now() - begun_).count();
    running_ = true;
    return std::nullopt;
  }
  if (now.finished())
    return CommandFailure{kFailed, fmt::format("job {} ended while it was queued: {}",
                                               job_.shown_id(), slurm_state_name(now.state))};
  if (now.state != SlurmState::pending || now.completing) return std::nullopt;
  if (auto failure = look_for_never(now)) return failure;
  hurry(now);
  say_why(now);
  return std::nullopt;
}

std::optional<CommandFailure> JobStart::look_for_never(const SlurmJob& now) {
  if (now.state != SlurmState::pending || !change_) return std::nullopt;
  if (!never_runs(now.reason)) {
    // None: Slurm has yet to look again.
    if (!now.reason.empty() && now.reason != "None") nevers_ = 0;
    return std::nullopt;
  }
  if (now.times.now == last_never_) return std::nullopt;
  last_never_ = now.times.now;
  if (++nevers_ >= kMostNevers) return put_back(now);
  // Makes Slurm look again.
  (void)steering_.slurm.change(job_, {}).ok();
  return std::nullopt;
}

CommandFailure JobStart::put_back(const SlurmJob& now) {
  SlurmJobChange change;
  change.gpus = change_->from;
  const std::string never = fmt::format("Slurm says that job {} can never run with {} ({})",
                                        job_.shown_id(), counted(change_->to, "GPU"), now.reason);
  Status status;
  for (int tries = 0; tries < 10; ++tries, steering_.time.sleep(500ms)) {
    status = steering_.slurm.change(job_, change);
    if (status.ok() || status.error().kind != ErrorKind::unavailable) break;
  }
  if (!status)
    return {kFailed, fmt::format("{}, and it could not be put back to {}: {}; 'bellows resize "
                                 "{} {}' tries again",
                                 never, counted(change_->from, "GPU"), status.error().text,
                                 job_.shown_id(), change_->from)};
  return {kFailed, fmt::format("{}; it asks for {} again and continues when it starts", never,
                               counted(change_->from, "GPU"))};
}

void JobStart::say_why(const SlurmJob& now) {
  const bool told = now.reason == said_ || now.reason.empty() || now.reason == "None";
  const bool soon = now.reason == "BeginTime" && now.times.start <= now.times.now + kNotWorthSaying;
  if (told || soon || seconds_ <= kSayWaitingAfter) return;
  said_ = now.reason;
  steering_.say("the job waits " + wait_text(now));
}

void JobStart::hurry(const SlurmJob& now) {
  if (!pulled_) {
    SlurmJobChange change;
    change.begin_time = now.times.now + requeue_clock::kSoon;
    // Slurm refuses this if the job has just started; then there is nothing to hasten.
    pulled_ = steering_.slurm.change(job_, change).ok();
    next_look_ = now.times.now + requeue_clock::kSoon;
  } else if (now.times.now >= std::max(next_look_, now.times.begin)) {
    // A change makes Slurm look at the job, even an empty one; else it may take a minute.
    (void)steering_.slurm.change(job_, {}).ok();
    next_look_ = now.times.now + (++looks_ > 5 ? 10 : 1);
  }
}

}  // namespace bellows
