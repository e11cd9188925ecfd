// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows {

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};

/// Where bellowsd listens, of each of a pair, and whom it runs as: "[UID]@HOST:PORT[,HOST:PORT]".
/// It is in the contract of each job whose size bellowsd may change. A value.
struct ControllerAddress {
  std::optional<uid_t> uid;  ///< none: SlurmUser
  std::vector<HostPort> hosts;

  /// invalid: says why.
  static Result<ControllerAddress> parse(std::string_view text);
  std::string to_string() const;
  bool operator==(const ControllerAddress&) const = default;
};

/// "HOST:PORT", where HOST has letters, digits, "-", "_" and ".", or is an IPv6 address in
/// brackets.
Result<HostPort> parse_host_port(std::string_view text);

}  // namespace bellows
