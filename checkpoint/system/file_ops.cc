// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/system/file_ops.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace bellows {

Status FileOps::make_directory(const std::string& path) {
  const mode_t mode = directory_mode(access_);
  int rc = mkdir(path.c_str(), mode);
  if (rc < 0 && errno == ENOENT) {
    for (auto end = path.find('/', 1); end != path.npos; end = path.find('/', end + 1))
      (void)mkdir(path.substr(0, end).c_str(), mode);
    rc = mkdir(path.c_str(), mode);
  }
  struct stat s;
  if (rc == 0) return {};
  const int code = errno;
  if (code == EEXIST && stat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode)) return {};
  errno = code;
  return errno_error("make the directory", path);
}

Result<Fd> FileOps::create(const std::string& path) {
  return open_file(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, file_mode(access_));
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

Status FileOps::reserve(int fd, std::uint64_t bytes, const std::string& path) {
  int rc;
  do {
    rc = fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (rc < 0 && errno == EINTR);
  if (rc < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)) {
    rc = ftruncate(fd, static_cast<off_t>(bytes));
  }
  return rc < 0 ? Status(errno_error("write", path)) : Status();
}

Result<Fd> FileOps::open_direct(const std::string& path) {
  Fd fd(open(path.c_str(), O_WRONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC));
  if (!fd && errno != EINVAL) return errno_error("open", path);
  return fd;
}

Result<bool> FileOps::write_direct(int fd, const void* data, std::size_t bytes,
                                   std::uint64_t offset, const std::string& path) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(fd, from, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL) return false;
    if (written < 0) return errno_error("write", path);
    // After a short write the rest must begin at a multiple again.
    const std::size_t whole = static_cast<std::size_t>(written) / 4096 * 4096;
    if (whole == 0) return false;
    from += whole;
    offset += whole;
    bytes -= whole;
  }
  return true;
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
  return exchange_by_renames(a, b, spare);
}

Status FileOps::exchange_by_renames(const std::string& a, const std::string& b,
                                    const std::string& spare) {
  if (auto status = rename(b, spare); !status) return status;
  if (auto status = rename(a, b); !status) {
    (void)rename(spare, b);
    return status;
  }
  return rename(spare, a);
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
