// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spank/host.h"

/// In a task of a step that `bellows run` started, in task_init, as the user.
namespace bellows::spank {

/// On the host, before the task enters its view: the CPUs near its GPU, unless the launcher leaves
/// them to Slurm.
void bind_rank(spank_t spank);

/// In the view, after the image's variables: those of the launch kind.
void tell_rank(spank_t spank);

}  // namespace bellows::spank
