// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"

namespace bellows::container {

/// Mounts here, too, what root has mounted in the container until now in another step: as root of
/// the container's user namespace, in a mount namespace of the caller's own, with no rights of the
/// node's. What a root does, only its own processes see; so this is how one that joins them gets
/// it. It is not an error if there is nothing, or if a place for it is missing here. Afterwards the
/// working directory is what it was.
Status take_joined_mounts();

}  // namespace bellows::container
