// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bellows {

/// The private directory of a job's launcher and agents: $BELLOWS_RUN_DIR, else one in /tmp.
std::string run_dir_of(std::uint32_t job_id);

/// The job this process belongs to; none outside a job.
std::optional<std::uint32_t> job_id_from_environment();

/// Path of this binary.
std::string own_program();

}  // namespace bellows
