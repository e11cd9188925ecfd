// SPDX-License-Identifier: Apache-2.0
#include "launcher/job_start.h"

#include <fmt/core.h>

#include <thread>

namespace bellows {
namespace {

using namespace std::chrono_literals;

constexpr auto kPoll = 50ms;
constexpr double kPollFast = 15;  // seconds
constexpr auto kPollLater = 1000ms;
constexpr int kSoonStart = 2;  // 1 could fall into the second in which the old credential ended
constexpr double kSayWaitingAfter = 5;

}  // namespace

std::optional<CommandFailure> JobStart::run() {
  begun_ = Clock::now();
  const std::string queued = fmt::format("the job is queued {} and goes on when it starts", what_);
  steering_.standing(kTimedOut, queued);
  while (true) {
    if (steering_.interrupted() || steering_.out_of_time())
      return steering_.stopped_waiting(queued);
    // A job that waits for others may wait long; slurmctld has more to do than to answer that.
    std::this_thread::sleep_for(seconds_ < kPollFast ? kPoll : kPollLater);
    seconds_ = std::chrono::duration<double>(Clock::now() - begun_).count();
    auto job = steering_.slurm.job(job_.id);
    if (!job && job.error().kind == ErrorKind::not_found)
      return CommandFailure{kFailed, job.error().text + ": it ended while it was queued"};
    if (!job) continue;  // says nothing about the job
    found_ = *job;
    auto failure = look(*job);
    if (failure || running_) return failure;
  }
}

std::optional<CommandFailure> JobStart::look(const SlurmJob& now) {
  if (now.state == SlurmState::running && now.restarts >= least_restarts_) {
    seconds_ = std::chrono::duration<double>(Clock::now() - begun_).count();
    running_ = true;
    return std::nullopt;
  }
  if (now.finished())
    return CommandFailure{kFailed, fmt::format("job {} ended while it was queued: {}", job_.id,
                                               slurm_state_name(now.state))};
  if (now.state != SlurmState::pending || now.completing) return std::nullopt;
  hurry(now);
  const bool others_first = now.reason == "Resources" || now.reason == "Priority";
  if (others_first && !said_waiting_ && seconds_ > kSayWaitingAfter) {
    said_waiting_ = true;
    steering_.say(fmt::format("waiting for GPUs ({})", now.reason));
  }
  return std::nullopt;
}

void JobStart::hurry(const SlurmJob& now) {
  if (!pulled_) {
    SlurmJobChange change;
    change.begin_time = now.controller_now + kSoonStart;
    // Refused when it has just started; then there is nothing to pull.
    pulled_ = steering_.slurm.change(job_, change).ok();
    next_look_ = now.controller_now + kSoonStart;
  } else if (now.controller_now >= next_look_) {
    // A change makes Slurm look at the job, even an empty one; else it may take a minute.
    (void)steering_.slurm.change(job_, {}).ok();
    next_look_ = now.controller_now + (++looks_ > 5 ? 10 : 1);
  }
}

}  // namespace bellows
