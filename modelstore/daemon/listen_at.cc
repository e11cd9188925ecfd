// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/listen_at.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace bellows {

Result<Fd> listen_at(const std::string& path, mode_t mode) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Error{ErrorKind::invalid, fmt::format("the socket's path is longer than {} bytes: {}",
                                                 sizeof address.sun_path - 1, path)};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error("make", "a socket");
  // Its folder's lock says that who bound it is gone.
  unlink(path.c_str());
  // A chmod would follow a link that the folder's owner puts there meanwhile.
  const mode_t before = umask(0777 & ~mode);
  const int bound = bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int failure = errno;
  umask(before);
  errno = failure;
  if (bound < 0 || listen(fd.get(), 1024) < 0) return errno_error("listen on", path);
  return fd;
}

bool lost_its_name(int listener) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.sun_path[0] != '/')
    return false;
  struct stat info {};
  return lstat(address.sun_path, &info) != 0 && errno == ENOENT;
}

}  // namespace bellows
