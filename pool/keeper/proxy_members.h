// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pool/proxy/proxy_slots.h"
#include "pool/wire/pool.pb.h"

namespace bellows::pool {

/// The addresses of members in digits, as a proxy wants them. Keeps what it has looked up.
class ProxyMembers {
 public:
  /// Those that have an address, as far as their nodes' names can be looked up.
  std::vector<ProxiedMember> of(const Members& members);

 private:
  std::map<std::string, std::string> known_;  ///< by host
};

}  // namespace bellows::pool
