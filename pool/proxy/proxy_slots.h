// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows::pool {

/// The name of the servers in HAProxy's configuration, which has a slot for each member.
inline constexpr const char* kProxyBackend = "members";

/// A member as a proxy sees it. A value.
struct ProxiedMember {
  std::string ip;  ///< in digits
  std::uint16_t port = 0;
  bool drains = false;

  bool has_address_of(const ProxiedMember& other) const {
    return ip == other.ip && port == other.port;
  }
  bool operator==(const ProxiedMember&) const = default;
};

/// Which of HAProxy's slots has which member, and the commands that make it so. A value.
class ProxySlots {
 public:
  explicit ProxySlots(std::uint32_t slots) : slots_(slots) {}
  /// What a HAProxy that was there before says to "show servers state". corrupt: it is something
  /// else.
  static Result<ProxySlots> parse(std::string_view state, std::uint32_t slots);

  /// The commands for these members, in place of those that it had. Members above the number of
  /// slots get none.
  std::vector<std::string> change_to(const std::vector<ProxiedMember>& members);
  const std::vector<std::optional<ProxiedMember>>& slots() const { return slots_; }
  bool operator==(const ProxySlots&) const = default;

 private:
  std::vector<std::optional<ProxiedMember>> slots_;
};

}  // namespace bellows::pool
