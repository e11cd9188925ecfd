// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/proxy_members.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <memory>

#include "common/text.h"

namespace bellows::pool {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};

std::string look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  std::array<char, INET_ADDRSTRLEN> text{};
  const auto* const address = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  return inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) ? text.data() : "";
}

}  // namespace

std::vector<ProxiedMember> ProxyMembers::of(const Members& members) {
  std::vector<ProxiedMember> proxied;
  for (const Member& member : members.member()) {
    const std::size_t colon = member.address().rfind(':');
    if (colon == std::string::npos) continue;
    const std::string host = member.address().substr(0, colon);
    const auto port = parse_uint(std::string_view(member.address()).substr(colon + 1));
    if (!port || *port == 0 || *port > UINT16_MAX) continue;
    std::string& ip = known_[host];
    if (ip.empty()) ip = look_up(host);
    if (ip.empty()) continue;
    proxied.push_back({.ip = ip,
                       .port = static_cast<std::uint16_t>(*port),
                       .drains = member.state() == DRAINING});
  }
  return proxied;
}

}  // namespace bellows::pool
