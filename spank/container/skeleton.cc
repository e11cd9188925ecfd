// SPDX-License-Identifier: Apache-2.0
#include "spank/container/skeleton.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "common/directory.h"
#include "common/fd.h"

namespace bellows::container {
namespace {

constexpr int kMostDepth = 64;
constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

/// The mode that `name` has, and all rights for the owner that the caller now is.
Status make_like(int from, int to, const char* name) {
  struct stat info {};
  if (::fstatat(from, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return errno_error("look at", name);
  if (::mkdirat(to, name, (info.st_mode & 0777) | 0700) != 0 && errno != EEXIST)
    return errno_error("create", name);
  return {};
}

Status copy_below(Fd from, int to, int depth) {
  const Directory dir = read_directory(std::move(from));
  if (!dir) return errno_error("read", "a directory of the image");
  const int fd = ::dirfd(dir.get());
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (entry->d_type != DT_DIR || is_dots(name)) continue;
    if (auto status = make_like(fd, to, entry->d_name); !status) return status;
    Fd next(::openat(fd, entry->d_name, kDirectory));
    const Fd made(::openat(to, entry->d_name, kDirectory));
    if (!made) return errno_error("open", name);
    if (!next || depth == kMostDepth) continue;
    if (auto status = copy_below(std::move(next), made.get(), depth + 1); !status) return status;
  }
  return {};
}

}  // namespace

Status copy_directories(int from, int to) {
  Fd top(::openat(from, ".", kDirectory));
  if (!top) return errno_error("open", "the image's root");
  return copy_below(std::move(top), to, 1);
}

}  // namespace bellows::container
