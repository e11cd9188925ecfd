// SPDX-License-Identifier: Apache-2.0
#include "common/local_address.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "common/fd.h"

namespace bellows {
namespace {

/// Any port will do: connecting a datagram socket only looks up the route.
constexpr std::uint16_t kDiscardPort = 9;

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

// Not the resolver, which reads files that an image could bring.
std::string digits_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET)
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  if (address->sa_family == AF_INET6)
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (bytes == nullptr || !inet_ntop(address->sa_family, bytes, text, sizeof text)) return "";
  return text;
}

socklen_t read_digits(const std::string& text, sockaddr_storage* storage) {
  auto* four = reinterpret_cast<sockaddr_in*>(storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(storage);
  if (inet_pton(AF_INET, text.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(kDiscardPort);
    return sizeof *four;
  }
  if (inet_pton(AF_INET6, text.c_str(), &six->sin6_addr) != 1) return 0;
  six->sin6_family = AF_INET6;
  six->sin6_port = htons(kDiscardPort);
  return sizeof *six;
}

}  // namespace

Result<std::string> address_towards(const std::string& peer) {
  sockaddr_storage storage = {};
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  socklen_t length = read_digits(peer, &storage);
  if (length == 0)
    return Error{ErrorKind::invalid, fmt::format("\"{:.80}\" is not an address", peer)};
  const Fd fd(socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno_error("make", "a socket");
  if (connect(fd.get(), address, length) != 0 || getsockname(fd.get(), address, &length) != 0)
    return Error{ErrorKind::unavailable, fmt::format("there is no route to {}", peer)};
  return digits_of(address);
}

Result<std::string> interface_with(const std::string& address) {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return errno_error("list", "the network interfaces");
  const std::unique_ptr<ifaddrs, FreeInterfaces> list(found);
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next)
    if (entry->ifa_addr != nullptr && !address.empty() && digits_of(entry->ifa_addr) == address)
      return std::string(entry->ifa_name);
  return Error{ErrorKind::not_found, fmt::format("no network interface has {}", address)};
}

}  // namespace bellows
