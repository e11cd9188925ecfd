// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/system/file_read.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>

namespace bellows {

Error unreadable(const Error& error, const std::string& path) {
  struct stat s;
  if (error.kind == ErrorKind::invalid) return Error{ErrorKind::corrupt, error.text};
  if (lstat(path.c_str(), &s) < 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    return missing ? Error{ErrorKind::corrupt, path + " is missing"} : error;
  }
  return S_ISREG(s.st_mode) ? error : Error{ErrorKind::corrupt, path + " is not a plain file"};
}

Result<Fd> open_shard(const std::string& path, std::uint64_t size) {
  auto fd = open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!fd) return unreadable(fd.error(), path);
  struct stat s;
  if (fstat(fd->get(), &s) < 0) return errno_error("look at", path);
  if (!S_ISREG(s.st_mode)) return Error{ErrorKind::corrupt, path + " is not a plain file"};
  const auto found = static_cast<std::uint64_t>(s.st_size);
  if (found == size) return fd;
  return Error{ErrorKind::corrupt,
               fmt::format("{} is {}: it has {} bytes, {} are expected", path,
                           found < size ? "truncated" : "too long", found, size)};
}

}  // namespace bellows
