// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "launcher/steer/steering.h"
#include "slurm/requeue.h"

namespace bellows {

/// Requeues a job that has stopped, as `next` says; why not, and who does it then.
std::optional<CommandFailure> take_road(const Steering& steering, const SlurmJob& job,
                                        const NextRun& next);

}  // namespace bellows
