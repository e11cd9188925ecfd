// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace bellows::container {

/// Makes the caller's mount namespace (its own, just unshared) the job's view of the host: nothing
/// mounted in it is seen outside, nor what is mounted outside from now on seen in it; /tmp and
/// /var/tmp are the job's own (one tmpfs of `tmp_mib`), and so is /dev/shm. Needs CAP_SYS_ADMIN.
/// 0 MiB: half of the machine's memory, as a tmpfs has it. Pages count for the job that writes
/// them.
/// `kept`: directories below one of the three that stay as they are on the host, all jobs alike.
Status build_base_view(std::uint64_t tmp_mib, std::uint64_t shm_mib,
                       const std::vector<std::string>& kept);

/// The name under which that namespace is pinned among the job's views.
inline constexpr const char* kBase = "base";

/// As root, with no other thread in the process: into the job's view of the host. not_found: no
/// task has come so far as to make it.
Status enter_base(const std::string& run_dir, std::uint32_t job);

}  // namespace bellows::container
