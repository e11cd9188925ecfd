// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "pool/proxy/proxy_slots.h"

namespace bellows::pool {

struct ProxyOptions {
  std::string runtime_socket;              ///< a path, for HAProxy's runtime interface
  std::chrono::seconds request_limit{60};  ///< for a member's answer
};

/// HAProxy's configuration: it takes requests at its standard input, which is a listening socket,
/// so that none is refused while it is started again. Requests go to the member with the fewest;
/// those that HTTP calls idempotent are repeated at another member when one is lost. It begins with
/// the members of `slots`.
std::string proxy_config(const ProxyOptions& options, const ProxySlots& slots);

}  // namespace bellows::pool
