// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"

namespace bellows::container {

/// Makes all directories of the tree `from` below `to` again, empty and the caller's own: laid over
/// `from`, they let the caller create, remove and replace files everywhere. For kernels on which
/// map_root_to_caller() cannot do better. The time that this takes grows with the number of
/// directories. What the caller may not read is left as it is, and so is what lies deeper than 64
/// directories.
Status copy_directories(int from, int to);

}  // namespace bellows::container
