// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "launcher/steer/steering.h"
#include "slurm/requeue.h"

namespace bellows {

struct RoadTaken {
  RoadEnd end;
  std::optional<CommandFailure> failure;  ///< why not, and who does it then
};

/// Requeues a job that has stopped, as `next` says.
RoadTaken take_road(const Steering& steering, const SlurmJob& job, const NextRun& next);

}  // namespace bellows
