// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/fd.h"
#include "common/result.h"

/// What a container was made with, as a task finds it that joins: not what an image's user has made
/// of the names since. A directory that serves as an image can be rearranged under its container,
/// and a name of it may lead to another mount, which would then be changed, or to what the user
/// made himself.
namespace bellows::container {

/// /dev below `root` (both O_PATH descriptors); an error (denied) for any other.
Result<Fd> open_own_dev(int root);

/// /proc, likewise.
Result<Fd> open_own_proc(int root);

}  // namespace bellows::container
