// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <vector>

#include "common/result.h"
#include "spank/container/views.h"

namespace bellows::spank {

/// This process, root's, has the rights of a job's owner in these groups besides, from now on and
/// for good. False: it may have some of root's left, and has to end.
bool become_owner(container::JobOwner owner, const std::vector<gid_t>& groups);

/// Runs `call` in a child that has a job owner's rights and no others, and returns what it
/// returned. Slurm identifies the caller by the user of the process, so nothing that a user must
/// not ask for is requested as root.
///
/// The owner can stop, starve or kill that child, like any process of the owner: then, and after
/// `limit`, there is no answer (unavailable). The owner can't look into it, and so can't change the
/// answer.
Result<int> as_owner(container::JobOwner owner, std::chrono::seconds limit,
                     const std::function<int()>& call);

}  // namespace bellows::spank
