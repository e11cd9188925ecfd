// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/connections.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <utility>

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

Connections::Connections(std::uint16_t port, Clock::duration longest)
    : port_(port),
      longest_(longest),
      descriptors_(opendir("/proc/self/fd")),
      nothing_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      copy_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

// Another thread may close a descriptor at any time and get the number for something else: only
// what a copy of it was found to be may be ended.
int Connections::end_old(Clock::time_point now) {
  if (!descriptors_ || !nothing_ || !copy_) return 0;
  std::map<ino_t, Clock::time_point> seen;
  int ended = 0;
  rewinddir(descriptors_.get());
  while (const dirent* entry = readdir(descriptors_.get())) {
    struct stat status = {};
    if (dup3(std::atoi(entry->d_name), copy_.get(), O_CLOEXEC) < 0 ||
        fstat(copy_.get(), &status) != 0 || !S_ISSOCK(status.st_mode) || port_of(copy_) != port_ ||
        listens(copy_))
      continue;
    const auto known = seen_.find(status.st_ino);
    const auto since = known == seen_.end() ? now : known->second;
    // The server closes it in its own time, and it is not to be counted again.
    const bool is_old = now - since > longest_ && shutdown(copy_.get(), SHUT_RDWR) == 0;
    seen[status.st_ino] = is_old ? Clock::time_point::max() : since;
    ended += is_old;
  }
  // Else the last one would stay open.
  (void)dup3(nothing_.get(), copy_.get(), O_CLOEXEC);
  seen_ = std::move(seen);
  return ended;
}

}  // namespace bellows
