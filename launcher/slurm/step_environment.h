// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace bellows {

/// `environment` without the variables by which srun would take a size, a distribution or a binding
/// from the enclosing batch script.
std::vector<std::string> srun_environment(const char* const* environment);

/// The same for a step of the launcher's own programs, which no image has: it runs on the host,
/// whatever container the job has.
std::vector<std::string> host_step_environment(const char* const* environment);

}  // namespace bellows
