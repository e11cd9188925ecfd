// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/protocol/rendezvous.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>

#include "common/local_address.h"

namespace bellows {
namespace {

int set_option(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value);
}

// On all addresses of both kinds, as the program will bind it.
Fd bind_any(std::uint16_t* port) {
  Fd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 both = {};
  both.sin6_family = AF_INET6;
  socklen_t length = sizeof both;
  auto* address = reinterpret_cast<sockaddr*>(&both);
  if (!fd || set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0) != 0 ||
      bind(fd.get(), address, length) != 0) {
    fd = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    auto* four = reinterpret_cast<sockaddr_in*>(&both);
    *four = {};
    four->sin_family = AF_INET;
    length = sizeof *four;
    if (!fd || bind(fd.get(), address, length) != 0) return {};
  }
  if (getsockname(fd.get(), address, &length) != 0) return {};
  // sin_port and sin6_port lie at the same place.
  *port = ntohs(both.sin6_port);
  return fd;
}

}  // namespace

Result<ReservedPort> ReservedPort::take() {
  std::uint16_t port = 0;
  Fd fd = bind_any(&port);
  if (!fd) return errno_error("find", "a free TCP port");
  // Only now: the kernel gave a port that no socket has, and two sockets may share one as long as
  // both say so and neither listens.
  if (set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1) != 0)
    return errno_error("share", "a TCP port");
  return ReservedPort(std::move(fd), port);
}

std::string own_address(const std::string& node) {
  const char* peer = std::getenv("SLURM_LAUNCH_NODE_IPADDR");
  if (peer == nullptr) return node;
  const auto address = address_towards(peer);
  return address ? *address : node;
}

}  // namespace bellows
