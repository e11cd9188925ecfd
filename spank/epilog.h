// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "common/result.h"

/// A step's epilogs: the user's, of srun --task-epilog, and the site's TaskEpilog. Slurm runs both
/// as the user in children of slurmstepd that pass no hook of a task's, so they would be on the
/// host, beside the job's view of it.
namespace bellows::spank {

/// In slurmstepd, once its tasks are started: until each of so many tasks has had its epilogs, the
/// children of slurmstepd's first thread begin with `enter`, as root, and end where it fails. The
/// first call counts.
void take_epilogs(std::uint32_t tasks, std::function<Status()> enter);

/// One task has had its epilogs.
void epilogs_done();

}  // namespace bellows::spank
