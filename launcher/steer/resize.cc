// SPDX-License-Identifier: Apache-2.0
#include "launcher/steer/resize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "common/text.h"
#include "launcher/record/job_view.h"
#include "launcher/steer/job_start.h"
#include "launcher/steer/take_road.h"

namespace bellows {
namespace {

using nlohmann::json;

}  // namespace

std::optional<CommandFailure> check_size(const SlurmJob& job, std::uint32_t gpus) {
  auto contract = contract_of(job);
  if (!contract || !*contract || (*contract)->gpus.contains(gpus)) return std::nullopt;
  return refusal(
      job, fmt::format("may hold {}, not {}", counted((*contract)->gpus.to_string(), "GPU"), gpus));
}

std::optional<CommandFailure> check_batch(const SlurmJob& job, std::uint64_t batch) {
  auto contract = contract_of(job);
  const auto range = contract && *contract ? (*contract)->batch : std::nullopt;
  if (!range)
    return refusal(job, "has no range of batches; submit it with sbatch --batch-range=MIN-MAX");
  if (!range->contains(batch))
    return refusal(job, fmt::format("may use a batch of {}, not {}", range->to_string(), batch));
  if (job.state == SlurmState::pending)
    return refusal(job,
                   "is pending, and only its launcher can change its batch: leave out --batch, or "
                   "try again once the job runs");
  return std::nullopt;
}

std::optional<CommandFailure> Resize::check() const {
  if (Failure failure = check_steerable(job_, "resize")) return failure;
  if (Failure failure = check_size(job_, request_.gpus)) return failure;
  return request_.batch ? check_batch(job_, *request_.batch) : std::nullopt;
}

std::optional<CommandFailure> Resize::run() {
  auto job = steering_.slurm.job(request_.job);
  if (!job) return not_found_failure(job.error());
  job_ = *job;
  if (Failure failure = check()) return failure;
  if (Failure failure = become_owner(job_)) return failure;
  report_.from = job_.state == SlurmState::pending ? job_.requested_gpus() : job_.gpus();
  report_.to = request_.gpus;
  if (!moves() && !request_.batch) {
    report_.unchanged = true;
    report_.job = job_;
    return std::nullopt;
  }
  if (job_.state == SlurmState::pending) return change_pending();
  if (Failure failure = ask_for_leave()) return failure;
  warn_of_waiting_jobs();
  if (Failure failure = stop_at_checkpoint()) return failure;
  if (Failure failure = requeue()) return failure;
  if (Failure failure = wait_until_running()) return failure;
  return verify();
}

std::optional<CommandFailure> Resize::change_pending() {
  SlurmJobChange change;
  change.gpus = request_.gpus;
  if (Status status = steering_.slurm.change(job_, change); !status) {
    // Slurm may have taken some of the fields.
    change.gpus = report_.from;
    (void)steering_.slurm.change(job_, change).ok();
    return CommandFailure{kFailed, status.error().text + "; the pending job is unchanged"};
  }
  report_.was_pending = true;
  report_.job = job_;
  JobStart start(steering_, job_, job_.restarts, request_.gpus,
                 SizeChange{report_.from, request_.gpus});
  Failure failure = start.see_placed();
  if (start.found().id == job_.id) report_.job = start.found();
  return failure;
}

// If the job were refused only after its stop, that would cost it a restart.
std::optional<CommandFailure> Resize::ask_for_leave() {
  if (!moves()) return std::nullopt;
  Status status = steering_.slurm.may_change_size(job_, request_.gpus);
  if (status.ok()) return std::nullopt;
  if (status.error().kind == ErrorKind::unavailable)
    return CommandFailure{kUnreachable, status.error().text + "; nothing was changed"};
  return refusal(
      job_, fmt::format("cannot have {}: {}", counted(request_.gpus, "GPU"), status.error().text));
}

void Resize::warn_of_waiting_jobs() {
  auto jobs = steering_.slurm.jobs();
  if (!jobs) return;
  std::uint32_t waiting = 0;
  for (const SlurmJob& other : *jobs)
    if (other.id != job_.id && other.state == SlurmState::pending && other.priority > 0 &&
        other.partition == job_.partition)
      ++waiting;
  if (waiting > 0)
    steering_.say(
        fmt::format("warning: {} other {} in partition {} and may get the GPUs that this job gives "
                    "up; this job may have to wait before it runs again",
                    waiting, waiting == 1 ? "job waits" : "jobs wait", job_.partition));
}

std::optional<CommandFailure> Resize::stop_at_checkpoint() {
  json demand = {{"cmd", "stop"},
                 {"reason", "resize"},
                 {"gpus", request_.gpus},
                 {"from_scratch", request_.from_scratch}};
  if (request_.batch) demand["batch"] = *request_.batch;
  stop_.emplace(steering_, job_, demand.dump(),
                fmt::format("and then moves to {}", counted(request_.gpus, "GPU")));
  if (Failure failure = stop_->run()) return failure;
  report_.step = stop_->step();
  report_.batch = stop_->batch();
  report_.commit_s = stop_->seconds();
  return std::nullopt;
}

std::optional<CommandFailure> Resize::requeue() {
  requeued_ = steering_.time.now();
  NextRun next{.restarts = job_.restarts, .started = start_of_run(job_), .gpus_now = report_.from};
  if (moves()) next.gpus = request_.gpus;
  const RoadTaken taken = take_road(steering_, job_, next);
  if (taken.failure) return taken.failure;
  road_end_ = taken.end;
  if (road_end_ == RoadEnd::newer_run) return std::nullopt;
  steering_.say(fmt::format("requeued; asked for {}", counted(request_.gpus, "GPU")));
  return std::nullopt;
}

std::optional<CommandFailure> Resize::wait_until_running() {
  // A slurmctld that lost the record of a run gives the next one the same number.
  const bool forgotten = road_end_ == RoadEnd::forgotten;
  const bool counted_on = !forgotten && road_end_ != RoadEnd::newer_run;
  const auto change =
      moves() ? std::optional(SizeChange{report_.from, request_.gpus}) : std::nullopt;
  JobStart start(steering_, job_, job_.restarts + (counted_on ? 1 : 0), request_.gpus, change);
  if (forgotten) start.keep_begin_time();
  Failure failure = start.run();
  report_.job = start.found();
  report_.requeue_s = std::chrono::duration<double>(steering_.time.now() - requeued_).count();
  return failure;
}

std::optional<CommandFailure> Resize::verify() {
  const SlurmJob& job = report_.job;
  if (job.gpus() != request_.gpus)
    return CommandFailure{
        kFailed, fmt::format("job {} runs again, but with {} instead of {}", job_.shown_id(),
                             counted(job.gpus(), "GPU"), request_.gpus)};
  if (request_.batch && request_.batch != report_.batch)
    return CommandFailure{
        kFailed,
        fmt::format("job {} runs again on {}, but its launcher could not record the batch "
                    "{}; see what it says in bellows logs {}",
                    job_.shown_id(), counted(job.gpus(), "GPU"), *request_.batch, job_.shown_id())};
  std::vector<std::string> places;
  for (const NodeShare& share : job.nodes)
    places.push_back(fmt::format("{}: {}", share.node, share.gpus));
  steering_.say(fmt::format("running on {} ({}), {:.1f} s after the requeue",
                            counted(job.gpus(), "GPU"), fmt::join(places, ", "),
                            report_.requeue_s));
  return std::nullopt;
}

}  // namespace bellows
