// SPDX-License-Identifier: Apache-2.0
#include "launcher/steer/take_road.h"

#include <fmt/core.h>

namespace bellows {
namespace {

std::optional<CommandFailure> failure_of(const RequeueRoad::Done& done, const SlurmJob& job) {
  switch (done.end) {
    case RoadEnd::kept_size:
    case RoadEnd::as_it_is:
      return CommandFailure{kFailed, done.text + "; it was requeued and restarts at its old size"};
    case RoadEnd::ended:
      return CommandFailure{kFailed, fmt::format("Slurm did not requeue job {}, which is {}",
                                                 job.shown_id(), slurm_state_name(done.state))};
    case RoadEnd::gone:
      return CommandFailure{kFailed, done.text};
    case RoadEnd::refused:
    case RoadEnd::gave_up:
      return CommandFailure{kFailed, done.text + "; its launcher will requeue it"};
    case RoadEnd::moved:
    case RoadEnd::found:
    case RoadEnd::forgotten:
    case RoadEnd::newer_run:
      break;
  }
  return std::nullopt;
}

}  // namespace

RoadTaken take_road(const Steering& steering, const SlurmJob& job, const NextRun& next) {
  const RequeueRoad road(Party::command, next, steering.time.now());
  const auto done = walk(road, steering.slurm, job, steering.time);
  return {done.end, failure_of(done, job)};
}

}  // namespace bellows
