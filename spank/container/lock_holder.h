// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/fd.h"
#include "common/result.h"
#include "spank/container/job_cgroup.h"

namespace bellows::container {

/// Starts a process of the user's, without rights, that holds a locked file for as long as the job
/// is on the node, and once in an hour sets its time to say so. It ends with the job's last
/// processes, just before the job's views go. In the host's mount namespace.
Status hold_for_job(Fd lock, const JobCgroup& home);

}  // namespace bellows::container
