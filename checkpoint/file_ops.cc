// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_ops.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace bellows {

Status FileOps::make_directory(const std::string& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (!code) return {};
  errno = code.value();
  return errno_error("make the directory", path);
}

Result<Fd> FileOps::create(const std::string& path) {
  return open_file(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0644);
}

Status FileOps::write_at(int fd, const void* data, std::size_t bytes, std::uint64_t offset,
                         const std::string& path) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t written = pwrite(fd, from, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_error("write", path);
    from += written;
    offset += static_cast<std::uint64_t>(written);
    bytes -= static_cast<std::size_t>(written);
  }
  return {};
}

Status FileOps::sync(int fd, const std::string& path) {
  if (fsync(fd) == 0) return {};
  return errno_error("make durable", path);
}

Status FileOps::sync_directory(const std::string& path) { return bellows::sync_directory(path); }

Status FileOps::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return errno_error("rename to", to);
}

Status FileOps::exchange(const std::string& a, const std::string& b, const std::string& spare) {
  if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return {};
  if (errno != EINVAL && errno != ENOSYS) return errno_error("exchange with", b);
  if (auto status = FileOps::rename(b, spare); !status) return status;
  if (auto status = FileOps::rename(a, b); !status) {
    (void)FileOps::rename(spare, b);
    return status;
  }
  return FileOps::rename(spare, a);
}

Status FileOps::make_symlink(const std::string& target, const std::string& path) {
  if (symlink(target.c_str(), path.c_str()) == 0) return {};
  return errno_error("make the link", path);
}

Status FileOps::remove_file(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return errno_error("remove", path);
}

Status FileOps::remove_tree(const std::string& path) {
  std::error_code code;
  std::filesystem::remove_all(path, code);
  if (!code) return {};
  errno = code.value();
  return errno_error("remove", path);
}

}  // namespace bellows
