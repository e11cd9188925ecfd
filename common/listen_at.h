// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// A SOCK_SEQPACKET socket that listens there, in the place of what was there.
Result<Fd> listen_at(const std::string& path, mode_t mode);

/// Whether what a listening socket was bound to is there no more: its job may have ended without a
/// daemon to tell.
bool lost_its_name(int listener);

/// A TCP socket on all of this machine's addresses; of IPv4 only where there is no IPv6.
/// unavailable: the port is taken.
Result<Fd> listen_on(std::uint16_t port);

}  // namespace bellows
