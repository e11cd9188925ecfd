// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "pool/proxy/proxy_config.h"
#include "pool/proxy/proxy_slots.h"

namespace bellows::pool {

/// Says a command at HAProxy's runtime socket. Its answer. unavailable: HAProxy is not there, or
/// takes longer than a second.
Result<std::string> ask_proxy(const std::string& socket, std::string_view command);

/// Keeps a HAProxy at a pool's members. One thread at a time; blocks for a second at most.
class ProxyLink {
 public:
  /// `config`: the file that a HAProxy which is started again reads.
  ProxyLink(ProxyOptions options, std::string config, std::uint32_t slots)
      : options_(std::move(options)), config_(std::move(config)), slots_(slots) {}
  /// Before HAProxy starts: without members.
  Status begin() const;
  /// unavailable: HAProxy does not answer, or has been started again meanwhile: say it again.
  Status set(const std::vector<ProxiedMember>& members);

 private:
  Status learn();
  Status write_config();

  const ProxyOptions options_;
  const std::string config_;
  ProxySlots slots_;  ///< of the last answer
  std::optional<ProxySlots> written_;
};

}  // namespace bellows::pool
