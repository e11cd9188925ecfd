// SPDX-License-Identifier: Apache-2.0
#include "launcher/steer/halt.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "common/text.h"
#include "launcher/record/lost_halt.h"
#include "launcher/steer/job_start.h"
#include "launcher/steer/resize.h"
#include "launcher/steer/take_road.h"
#include "slurm/requeue.h"

namespace bellows {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

}  // namespace

std::optional<CommandFailure> Halt::run() {
  auto job = steering_.slurm.job(name_);
  if (!job) return not_found_failure(job.error());
  job_ = *job;
  if (auto failure = check_steerable(job_, "halt")) return failure;
  if (auto failure = become_owner(job_)) return failure;
  if (was_held()) return std::nullopt;
  if (was_pending()) return hold_pending();
  const json demand = {
      {"cmd", "stop"}, {"reason", "halt"}, {"hold", true}, {"from_scratch", from_scratch_}};
  stop_.emplace(steering_, job_, demand.dump(), "and is then held");
  if (auto failure = stop_->run()) return failure;
  step_ = stop_->step();
  commit_s_ = stop_->seconds();
  return requeue_held();
}

std::optional<CommandFailure> Halt::hold_pending() {
  SlurmJobChange change;
  change.held = true;
  if (Status status = steering_.slurm.change(job_, change); !status)
    return CommandFailure{kFailed, status.error().text + "; nothing was changed"};
  if (Status status = record_halt_of_waiting(job_); !status) steering_.say(status.error().text);
  return std::nullopt;
}

std::optional<CommandFailure> Halt::requeue_held() {
  NextRun next{.restarts = job_.restarts, .started = start_of_run(job_)};
  next.hold = true;
  const RoadTaken taken = take_road(steering_, job_, next);
  if (taken.end == RoadEnd::newer_run)
    return CommandFailure{
        kFailed,
        fmt::format("job {} has since begun another run, and is not held", job_.shown_id())};
  return taken.failure;
}

std::optional<CommandFailure> Resume::run() {
  auto job = steering_.slurm.job(request_.job);
  if (!job) return not_found_failure(job.error());
  job_ = *job;
  if (auto failure = check_steerable(job_, "resume")) return failure;
  if (auto failure = check()) return failure;
  if (auto failure = become_owner(job_)) return failure;
  from_ = job_.requested_gpus();
  if (auto failure = wait_until_cleaned()) return failure;
  if (auto failure = release()) return failure;
  const std::uint32_t gpus = request_.gpus.value_or(from_);
  // A launcher that does not find this record may halt the job again, but only once.
  if (Status status = record_resume(job_, gpus); !status)
    steering_.say(status.error().text + "; if the job is held again, resume it once more");
  steering_.say(fmt::format("released; asked for {}", counted(gpus, "GPU")));
  if (!request_.wait) return std::nullopt;
  const auto change = gpus == from_ ? std::nullopt : std::optional(SizeChange{from_, gpus});
  JobStart start(steering_, job_, job_.restarts, gpus, change);
  auto failure = start.run();
  seconds_ = start.seconds();
  if (failure) return failure;
  job_ = start.found();
  if (request_.gpus && job_.gpus() != gpus)
    return CommandFailure{kFailed,
                          fmt::format("job {} runs again, but with {} instead of {}",
                                      request_.job.to_string(), counted(job_.gpus(), "GPU"), gpus)};
  return std::nullopt;
}

std::optional<CommandFailure> Resume::check() const {
  if (job_.state != SlurmState::pending || job_.priority != 0)
    return refusal(job_, fmt::format("is not halted ({})", slurm_state_name(job_.state)));
  if (job_.reason == "JobHeldAdmin")
    return refusal(job_, "is held by an administrator, who alone can release it");
  return request_.gpus ? check_size(job_, *request_.gpus) : std::nullopt;
}

// Slurm overwrites changes that arrive while it still cleans up the last run. This takes seconds,
// in which others may cancel or release the job.
std::optional<CommandFailure> Resume::wait_until_cleaned() {
  if (!job_.completing) return std::nullopt;
  while (job_.completing) {
    if (steering_.interrupted() || steering_.out_of_time())
      return steering_.stopped_waiting("the job is still held");
    steering_.time.sleep(50ms);
    auto job = steering_.slurm.job(request_.job);
    if (!job && job.error().kind != ErrorKind::unavailable) return not_found_failure(job.error());
    if (job) job_ = *job;
  }
  return check();
}

std::optional<CommandFailure> Resume::release() {
  const bool resizes = request_.gpus && *request_.gpus != from_;
  SlurmJobChange size;
  if (resizes) size.gpus = request_.gpus;
  if (Status status = resizes ? steering_.slurm.change(job_, size) : Status(); !status) {
    // Slurm may have taken some of the fields.
    size.gpus = from_;
    (void)steering_.slurm.change(job_, size).ok();
    return CommandFailure{kFailed, status.error().text + "; the job is still held"};
  }
  SlurmJobChange change;
  change.held = false;
  change.begin_time = job_.times.now + requeue_clock::kSoon;
  if (Status status = steering_.slurm.change(job_, change); !status)
    return CommandFailure{kFailed, status.error().text + "; the job is still held"};
  return std::nullopt;
}

}  // namespace bellows
