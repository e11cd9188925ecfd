// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// A SOCK_SEQPACKET socket that listens there, in the place of what was there.
Result<Fd> listen_at(const std::string& path, mode_t mode);

/// Whether what a listening socket was bound to is there no more: its job may have ended without a
/// daemon to tell.
bool lost_its_name(int listener);

}  // namespace bellows
