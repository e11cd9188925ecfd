// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows::spank {

/// The job's own cgroups among those that a process of one of its steps is in, by the lines of its
/// /proc/PID/cgroup, each without what lies below the job. None: it is in no cgroup of the job.
std::vector<std::string> job_cgroups(std::uint32_t job, std::string_view lines);

/// Ends every process in these cgroups or below but root's. Slurm ends what tasks left, but
/// not what an epilog of theirs did, which slurmstepd starts beside them: that would outlive the
/// job within its devices. unavailable: some do not end within the limit.
Status end_leftovers(const std::vector<std::string>& cgroups, std::chrono::milliseconds limit);

/// The same of those alone that are in each of these cgroups themselves: no task that starts is,
/// which comes into its step's cgroups one after another.
Status end_beside_steps(const std::vector<std::string>& cgroups, std::chrono::milliseconds limit);

/// Notes, with the job's views, in which cgroups there may be such processes. As root, with a
/// Lease of the job's.
Status note_cgroups(const std::string& run_dir, std::uint32_t job,
                    const std::vector<std::string>& cgroups);

/// Ends these processes of a job whose slurmstepds were all killed, before its views are removed.
Status end_noted(const std::string& run_dir, std::uint32_t job, std::chrono::milliseconds limit);

}  // namespace bellows::spank
