// SPDX-License-Identifier: Apache-2.0
#include "common/resolved.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace bellows {

Result<Fd> open_resolved(int dir, const std::string& path, int flags, std::uint64_t resolve,
                         mode_t mode) {
  constexpr int kMostTries =
      64;  // a ".." is refused with EAGAIN while anything is renamed or mounted
  struct open_how how {};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.mode = mode;
  how.resolve = resolve;
  for (int tries = 0;; tries++) {
    Fd fd(static_cast<int>(::syscall(SYS_openat2, dir, path.c_str(), &how, sizeof how)));
    if (fd) return fd;
    const bool again = errno == EINTR || (errno == EAGAIN && tries < kMostTries);
    if (!again) return errno_error("open", path);
  }
}

Result<Fd> open_child(int parent, const std::string& name) {
  return open_resolved(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW,
                       RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
}

}  // namespace bellows
