// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"

namespace bellows {

/// The address from which this machine talks to `peer`, an IPv4 or IPv6 address in digits, and so
/// by which it can be reached from there. Sends nothing. invalid: `peer` is not an address;
/// unavailable: there is no way to it.
Result<std::string> address_towards(const std::string& peer);

/// The network interface that has this address. not_found: none has.
Result<std::string> interface_with(const std::string& address);

}  // namespace bellows
