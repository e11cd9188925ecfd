// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/fd.h"
#include "common/result.h"

namespace bellows::container {

/// Shows root's files of a detached mount as the caller's own, so that an overlay of it can be
/// written to by a user without rights over root's. Files of others are nobody's. For a squashfs
/// from Linux 6.2 on; `invalid` if the kernel cannot.
Status map_root_to_caller(int mount);

/// A user namespace in which the caller is root and nobody else is anybody.
Result<Fd> root_is_caller();

}  // namespace bellows::container
