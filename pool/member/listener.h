// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace bellows::pool {

/// Who else, neither this user nor root, listens at a TCP port, by a table in the form of
/// /proc/net/tcp: proc_net_tcp(5). Nothing: nobody.
std::optional<uid_t> stranger_in(std::string_view table, std::uint16_t port, uid_t own);

/// The same on this machine now, by IPv4 and IPv6.
std::optional<uid_t> stranger_at(std::uint16_t port);

}  // namespace bellows::pool
