// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"

namespace bellows {

/// Owns one file descriptor; closes it on destruction. Movable, never copied.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  /// Gives up ownership.
  int release();
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

/// An io (or not_found, denied) Error that says "WHAT PATH: strerror(errno)". Reads errno.
Error errno_error(std::string_view what, std::string_view path);

/// Opens with O_CLOEXEC added. Errors name the path.
Result<Fd> open_file(const std::string& path, int flags, mode_t mode = 0);

/// denied: it is not `owner`'s, or others may write to it.
Status check_owner(int fd, uid_t owner, std::string_view path);

/// Reads at most `limit` bytes; a longer file is an error (invalid), so that hostile files cost no
/// memory.
Result<std::string> read_file(const std::string& path, std::size_t limit);

/// Reads so many bytes. corrupt when the file ends before.
Status read_at(int fd, unsigned char* to, std::uint64_t bytes, std::uint64_t offset,
               std::string_view path);

/// Writes all of `data`, through short writes and EINTR.
Status write_all(int fd, std::string_view data, std::string_view path);

/// Atomic and durable replacement: temporary file in the same directory, fsync, rename, fsync of
/// the directory. On failure the old file is intact and the temporary file removed.
Status replace_file(const std::string& path, std::string_view data, mode_t mode);

/// fsync of a directory: makes renames and new names in it durable.
Status sync_directory(const std::string& path);

}  // namespace bellows
