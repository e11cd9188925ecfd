// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/connections.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/fd.h"

namespace bellows {
namespace {

std::optional<std::uint16_t> port_of(const Fd& socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return std::nullopt;
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return std::nullopt;
}

bool listens(const Fd& socket) {
  int yes = 0;
  socklen_t length = sizeof yes;
  return getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &yes, &length) != 0 || yes != 0;
}

}  // namespace

// Another thread may close a descriptor at any time and get the number for something else: only
// what a copy of it was found to be may be ended.
int Connections::end_old(Clock::time_point now) {
  std::map<ino_t, Clock::time_point> seen;
  int ended = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    const Fd copy(fcntl(std::atoi(entry->path().filename().c_str()), F_DUPFD_CLOEXEC, 0));
    struct stat status = {};
    if (!copy || fstat(copy.get(), &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    if (port_of(copy) != port_ || listens(copy)) continue;
    const auto known = seen_.find(status.st_ino);
    const auto since = known == seen_.end() ? now : known->second;
    // The server closes it in its own time, and it is not to be counted again.
    const bool is_old = now - since > longest_ && shutdown(copy.get(), SHUT_RDWR) == 0;
    seen[status.st_ino] = is_old ? Clock::time_point::max() : since;
    ended += is_old;
  }
  seen_ = std::move(seen);
  return ended;
}

}  // namespace bellows
