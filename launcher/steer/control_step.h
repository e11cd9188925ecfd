// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launcher/steer/launcher_line.h"

namespace bellows {

/// Calls launchers through `PROGRAM control` in a step of the job, which srun starts.
CallLauncher call_by_step(const std::string& program);

}  // namespace bellows
