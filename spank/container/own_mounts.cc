// SPDX-License-Identifier: Apache-2.0
#include "spank/container/own_mounts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "spank/container/mount_api.h"

namespace bellows::container {
namespace {

constexpr std::uint64_t kRootOfProc = 1;  // its inode; what lies below has others

/// The root of a mount of such a file system, by no link.
Result<Fd> open_own(int root, const char* name, long type, std::uint64_t inode) {
  auto fd = open_in_root(root, name, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  if (!fd) return fd;
  struct statx info {};
  struct statfs system {};
  if (::statx(fd->get(), "", AT_EMPTY_PATH, STATX_INO, &info) != 0 ||
      ::fstatfs(fd->get(), &system) != 0)
    return errno_error("look at", name);
  const bool mounted = (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  if (!mounted || system.f_type != type || (inode != 0 && info.stx_ino != inode))
    return Error{ErrorKind::denied,
                 fmt::format("{} is not the one that the container was made with", name)};
  return fd;
}

}  // namespace

Result<Fd> open_own_dev(int root) { return open_own(root, "/dev", TMPFS_MAGIC, 0); }

Result<Fd> open_own_proc(int root) {
  return open_own(root, "/proc", PROC_SUPER_MAGIC, kRootOfProc);
}

}  // namespace bellows::container
