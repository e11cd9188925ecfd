// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "spank/container/task_prolog.h"
#include "spank/host.h"

namespace bellows::spank {

/// In a task's process: TaskProlog, which Slurm then does not run there, where it would be in the
/// container. It may take so many seconds.
container::PrologRun take_prolog(spank_t spank, std::uint32_t seconds);

}  // namespace bellows::spank
