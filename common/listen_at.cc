// SPDX-License-Identifier: Apache-2.0
#include "common/listen_at.h"

#include <fmt/core.h>
#include <netinet/in.h>
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

Result<Fd> listen_on(std::uint16_t port) {
  const Error failed{ErrorKind::unavailable,
                     fmt::format("cannot listen on port {}: does something else?", port)};
  Fd listener(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool is_six = static_cast<bool>(listener);
  if (!is_six) listener.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1, no = 0;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  if (is_six) setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  const int bound = is_six ? bind(listener.get(), reinterpret_cast<sockaddr*>(&six), sizeof six)
                           : bind(listener.get(), reinterpret_cast<sockaddr*>(&four), sizeof four);
  if (bound < 0 || listen(listener.get(), 1024) < 0) return failed;
  return listener;
}

}  // namespace bellows
