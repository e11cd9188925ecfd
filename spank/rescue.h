// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "slurm/requeue.h"
#include "spank/controller.h"

namespace bellows::spank {

/// How often one job may be rescued on a node before it is left to fail.
inline constexpr std::uint32_t kMostRescues = 16;

/// One end of a batch script whose launcher left no outcome.
struct BatchEnd {
  /// Of the run that ends here; nothing when slurmctld did not answer at its start.
  std::optional<std::uint32_t> restarts;
  std::string node;
  std::uint32_t rescues = 0;  ///< so far
};

/// Why a job that runs is not to be requeued here, for the log; empty: it is. The batch script must
/// be the one that slurmctld counts as running: a node that was cut off may end an old run while
/// the job is running elsewhere.
std::string reason_to_leave(const BatchEnd& end, const JobInfo& info);

/// What the requeue road needs of slurmctld's answer. Held jobs are left alone, as ended ones are.
QueuedJob queued_job(const JobInfo& info);

/// What the walk of a rescue does in the world.
struct RescueHands {
  std::function<Result<JobInfo>()> look;
  std::function<Status()> requeue;  ///< counted
  std::function<Status(const NextStart& next)> set_next_run;
  RoadTime time = RoadTime::real();
};

/// What became of the job, for the log. `text`: why it was left alone, or what went wrong.
struct RescueReport {
  bool requeued = false;
  bool failed = false;
  std::string text;
};

/// Brings a job back whose launcher was killed. `gpus`: the size that the launcher was moving to.
RescueReport rescue(const BatchEnd& end, std::optional<std::uint32_t> gpus,
                    const RescueHands& hands);

}  // namespace bellows::spank
