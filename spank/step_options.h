// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "spank/container/spec.h"
#include "spank/host.h"

namespace bellows::spank {

/// slurmstepd: what the --container options of this step's srun say, and takes the variable that
/// carries them out of the step's environment. Anyone can forge it, so it is read as strictly as at
/// the prompt, and container::effective_spec says what of it the step gets.
/// invalid: a sentence for the user.
Result<container::Spec> take_step_options(spank_t spank);

}  // namespace bellows::spank
