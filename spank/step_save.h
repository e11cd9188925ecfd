// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "spank/container/job_cgroup.h"
#include "spank/host.h"
#include "spank/save.h"

namespace bellows::spank {

/// What its saving has to know of a step's tasks. A resource.
struct SavedTasks {
  Result<container::JobCgroup> cgroups = Error{ErrorKind::not_found, "no task was started"};
  std::uint32_t ended = 0;
  int killed_by = 0;  ///< one of them; 0: none was
};

/// task_post_fork, when Slurm has a task where it is to be.
void note_start(spank_t spank, SavedTasks& tasks);
/// task_exit. Whether it was the last one's.
bool note_end(spank_t spank, SavedTasks& tasks);

/// Who saves a container of slurmstepd's step, and with what: all but the container's name, where
/// the file is named, and its path. Not for a step that Slurm ends: nothing would kill the saving
/// once more. `tasks` has to outlive the request.
Result<SaveRequest> step_save(spank_t spank, const Settings& settings, const SavedTasks& tasks);

}  // namespace bellows::spank
