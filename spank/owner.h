// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "common/result.h"
#include "spank/container/views.h"

namespace bellows::spank {

/// Runs `call` in a child that has a job owner's rights and no others, and returns what it
/// returned. Slurm tells who asks by the user of the process, so what a user must not be able to
/// ask for is not asked for as root.
///
/// The owner can stop, starve or kill that child, as any process of his: then, and after `limit`,
/// there is no answer (unavailable). He can't look into it, so he can't change the answer.
Result<int> as_owner(container::JobOwner owner, std::chrono::seconds limit,
                     const std::function<int()>& call);

}  // namespace bellows::spank
