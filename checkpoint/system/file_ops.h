// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/access.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// Every change the store makes to a file system, one call for each, so that a test can make any of
/// them fail and look at what is left. Safe for several threads. Errors name the path.
class FileOps {
 public:
  explicit FileOps(Access access = Access::owner) : access_(access) {}
  virtual ~FileOps() = default;

  /// Of what is made from here on.
  void set_access(Access access) { access_ = access; }
  Access access() const { return access_; }

  /// A directory that exists already is fine; its parents are made too.
  virtual Status make_directory(const std::string& path);
  /// An empty file for writing; one that exists is emptied.
  virtual Result<Fd> create(const std::string& path);
  virtual Status write_at(int fd, const void* data, std::size_t bytes, std::uint64_t offset,
                          const std::string& path);
  /// Gives the file its size and finds room for all of it, where the file system can do that.
  virtual Status reserve(int fd, std::uint64_t bytes, const std::string& path);
  /// The same file for writing past the page cache; no descriptor where the file system can't.
  virtual Result<Fd> open_direct(const std::string& path);
  /// As write_at, on such a descriptor: data, bytes and offset are multiples of 4096. False: the
  /// file system doesn't take it, and write_at is to be used for all of it.
  virtual Result<bool> write_direct(int fd, const void* data, std::size_t bytes,
                                    std::uint64_t offset, const std::string& path);
  virtual Status sync(int fd, const std::string& path);
  virtual Status sync_directory(const std::string& path);
  /// Replaces a file or an empty directory.
  virtual Status rename(const std::string& from, const std::string& to);
  /// Swaps two names at once; where the file system can't, as exchange_by_renames.
  virtual Status exchange(const std::string& a, const std::string& b, const std::string& spare);
  /// By way of `spare`, which must not exist; a crash in between may leave nothing under `b`.
  Status exchange_by_renames(const std::string& a, const std::string& b, const std::string& spare);
  virtual Status make_symlink(const std::string& target, const std::string& path);
  /// Something that isn't there is fine.
  virtual Status remove_file(const std::string& path);
  /// A directory with all in it, following no link; something that isn't there is fine.
  virtual Status remove_tree(const std::string& path);

 private:
  std::atomic<Access> access_;
};

}  // namespace bellows
