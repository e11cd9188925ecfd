// SPDX-License-Identifier: Apache-2.0
#include "common/fd.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace bellows {

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) reset(other.release());
  return *this;
}

int Fd::release() { return std::exchange(fd_, -1); }

void Fd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Error errno_error(std::string_view what, std::string_view path) {
  const int code = errno;
  ErrorKind kind = ErrorKind::io;
  if (code == ENOENT) kind = ErrorKind::not_found;
  if (code == EACCES || code == EPERM) kind = ErrorKind::denied;
  return Error{kind, fmt::format("cannot {} {}: {}", what, path, std::strerror(code))};
}

Result<Fd> open_file(const std::string& path, int flags, mode_t mode) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return errno_error("open", path);
  return Fd(fd);
}

Status check_owner(int fd, uid_t owner, std::string_view path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error("stat", path);
  if (info.st_uid == owner && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return Error{ErrorKind::denied,
               fmt::format("{}: not trusted, since it is not owned by user {} or others may "
                           "write to it (owner {}, mode {:o})",
                           path, owner, info.st_uid, info.st_mode & 07777)};
}

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  // O_NONBLOCK: a FIFO in the file's place must not hang its reader.
  auto fd = open_file(path, O_RDONLY | O_NONBLOCK);
  if (!fd) return fd.error();
  std::string data;
  char buffer[16384];
  while (true) {
    const ssize_t n = ::read(fd->get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("read", path);
    if (n == 0) return data;
    if (data.size() + static_cast<std::size_t>(n) > limit)
      return Error{ErrorKind::invalid, fmt::format("{} is larger than {} bytes", path, limit)};
    data.append(buffer, static_cast<std::size_t>(n));
  }
}

Status read_at(int fd, unsigned char* to, std::uint64_t bytes, std::uint64_t offset,
               std::string_view path) {
  while (bytes > 0) {
    const ssize_t got = pread(fd, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("read", path);
    if (got == 0) return Error{ErrorKind::corrupt, fmt::format("{} is truncated", path)};
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
  return {};
}

Status write_all(int fd, std::string_view data, std::string_view path) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("write", path);
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Status sync_directory(const std::string& path) {
  auto fd = open_file(path, O_RDONLY | O_DIRECTORY);
  if (!fd) return fd.error();
  if (::fsync(fd->get()) != 0) return errno_error("fsync", path);
  return {};
}

Status replace_file(const std::string& path, std::string_view data, mode_t mode) {
  const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  ::unlink(temporary.c_str());
  auto fd = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  if (!fd) return fd.error();
  Status status = write_all(fd->get(), data, temporary);
  if (status.ok() && ::fchmod(fd->get(), mode) != 0) status = errno_error("chmod", temporary);
  if (status.ok() && ::fsync(fd->get()) != 0) status = errno_error("fsync", temporary);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0)
    status = errno_error("rename", temporary);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return sync_directory(".");
  return sync_directory(slash == 0 ? "/" : path.substr(0, slash));
}

}  // namespace bellows
