// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "launcher/record/event_log.h"
#include "slurm/interface.h"

namespace bellows {

/// A launcher records that it halts its job before it tells the ranks, so that the next launcher
/// can carry out the halt if this one is killed.

/// The cause of such a stop.
inline constexpr const char* kHalt = "halt";
/// Whether the run before the one with this restart count was to be halted and ended without it.
/// Later runs do not ask: a halt that could not be written down must not be repeated at each start.
bool halt_was_lost(const std::vector<JobEvent>& events, std::uint32_t restarts);

/// Records what happens to a job that has no launcher to do so. A halt that was lost before is
/// over then. Nothing is written where the job's checkpoint directory is not there yet.
Status record_halt_of_waiting(const SlurmJob& job);
Status record_resume(const SlurmJob& job, std::uint32_t gpus);
/// For a run whose launcher gives up before it has a history to write to: makes the job's usual
/// directory, which may be another one than it was given.
Status record_refused_run(const SlurmJob& job, const std::string& cause);

}  // namespace bellows
