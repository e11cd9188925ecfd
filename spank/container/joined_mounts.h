// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"

namespace bellows::container {

/// Mounts here, too, what root has mounted until now in another step that runs in this container.
/// Only its own processes see what root mounts, so a task that joins copies it. Not what lies on
/// something that is mounted here already, nor what the set-up of the other step mounted for it.
///
/// As root of the container's user namespace, in a mount namespace of the caller's own: with no
/// rights over the node, and with trust in nothing that the other root says. It is not an error if
/// there is nothing, or if it cannot be had. Afterwards the working directory is what it was.
Status take_joined_mounts();

}  // namespace bellows::container
