// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "launcher/steer/job_stop.h"
#include "launcher/steer/steering.h"
#include "slurm/interface.h"

namespace bellows {

struct ResizeRequest {
  JobName job;
  std::uint32_t gpus = 0;
  bool from_scratch = false;             ///< also when the program has no checkpoint to go on from
  std::optional<std::uint64_t> batch{};  ///< nothing: as before
};

/// What a resize did and how long its parts took.
struct ResizeReport {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  bool was_pending = false;            ///< only the request of a waiting job was changed
  bool unchanged = false;              ///< it had that size already
  std::optional<std::uint64_t> step;   ///< the step it goes on from
  std::optional<std::uint64_t> batch;  ///< that its launcher has recorded; nothing: as before
  double commit_s = 0;                 ///< from the demand to the commit
  double requeue_s = 0;                ///< from the requeue to RUNNING
  SlurmJob job;                        ///< as it was at the end
};

/// Moves a job to another number of GPUs, another batch or both, from outside the job. Called by
/// root it drops root's rights for good and acts as the job's owner. Stops it at a checkpoint
/// through its launcher, requeues it, sets the size and watches it start. Whatever happens to the
/// caller, the job goes on: from the demand on its launcher finishes the move alone.
class Resize {
 public:
  Resize(Steering steering, ResizeRequest request)
      : steering_(std::move(steering)), request_(request) {}

  /// The report, or why not.
  std::optional<CommandFailure> run();
  const ResizeReport& report() const { return report_; }

 private:
  using Clock = Steering::Clock;
  using Failure = std::optional<CommandFailure>;

  bool moves() const { return report_.from != report_.to; }
  Failure check() const;
  Failure change_pending();
  Failure ask_for_leave();
  void warn_of_waiting_jobs();
  Failure stop_at_checkpoint();
  Failure requeue();
  Failure wait_until_running();
  Failure verify();

  Steering steering_;
  ResizeRequest request_;
  Clock::time_point requeued_;
  RoadEnd road_end_ = RoadEnd::moved;
  std::optional<JobStop> stop_;  ///< kept until its step has ended by itself
  SlurmJob job_;
  ResizeReport report_;
};

/// Whether the job's contract allows the size.
std::optional<CommandFailure> check_size(const SlurmJob& job, std::uint32_t gpus);
/// The same of a batch. One of a job that waits can't be changed, since its launcher records it.
std::optional<CommandFailure> check_batch(const SlurmJob& job, std::uint64_t batch);

}  // namespace bellows
