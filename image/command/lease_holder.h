// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "common/fd.h"
#include "common/result.h"

namespace bellows::image {

/// "job 7 on n1".
std::string lease_name(std::uint32_t job);

/// Starts a process that does nothing but keep the lease until it is killed: not by the signals
/// that Slurm ends jobs with, since the job's tasks may still need the image then, but with the
/// job's cgroup.
Status keep_lease(const Fd& lease);

}  // namespace bellows::image
