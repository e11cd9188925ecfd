// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/system/file_ops.h"
#include "tests/unit/checkpoint/checkpoint_support.h"

namespace bellows::checkpoint_test {

/// Notes every call, and from the nth on fails them all: what a crash there would leave.
class FailingOps : public FileOps {
 public:
  std::vector<std::string> log;
  std::size_t fail_from = SIZE_MAX;
  std::size_t fail_only = SIZE_MAX;
  bool can_exchange = true;  ///< as network file systems can't

  Status make_directory(const std::string& path) override {
    return count("mkdir", path) ? FileOps::make_directory(path) : failure(path);
  }
  Result<Fd> create(const std::string& path) override {
    if (!count("create", path)) return failure(path);
    return FileOps::create(path);
  }
  Status write_at(int fd, const void* data, std::size_t bytes, std::uint64_t offset,
                  const std::string& path) override {
    return count("write", path) ? FileOps::write_at(fd, data, bytes, offset, path) : failure(path);
  }
  Status reserve(int fd, std::uint64_t bytes, const std::string& path) override {
    return count("reserve", path) ? FileOps::reserve(fd, bytes, path) : failure(path);
  }
  Result<Fd> open_direct(const std::string& path) override {
    if (!count("open", path)) return failure(path);
    return FileOps::open_direct(path);
  }
  Result<bool> write_direct(int fd, const void* data, std::size_t bytes, std::uint64_t offset,
                            const std::string& path) override {
    if (!count("write", path)) return failure(path);
    return FileOps::write_direct(fd, data, bytes, offset, path);
  }
  Status sync(int fd, const std::string& path) override {
    return count("sync", path) ? FileOps::sync(fd, path) : failure(path);
  }
  Status sync_directory(const std::string& path) override {
    return count("syncdir", path) ? FileOps::sync_directory(path) : failure(path);
  }
  Status rename(const std::string& from, const std::string& to) override {
    return count("rename", to) ? FileOps::rename(from, to) : failure(to);
  }
  Status exchange(const std::string& a, const std::string& b, const std::string& spare) override {
    if (!count("exchange", b)) return failure(b);
    return can_exchange ? FileOps::exchange(a, b, spare) : exchange_by_renames(a, b, spare);
  }
  Status make_symlink(const std::string& target, const std::string& path) override {
    return count("symlink", path) ? FileOps::make_symlink(target, path) : failure(path);
  }
  Status remove_file(const std::string& path) override {
    return count("unlink", path) ? FileOps::remove_file(path) : failure(path);
  }
  Status remove_tree(const std::string& path) override {
    return count("rmtree", path) ? FileOps::remove_tree(path) : failure(path);
  }
  /// The number of the first call after `from` whose text has both parts; SIZE_MAX: none.
  std::size_t find(const std::string& op, const std::string& part, std::size_t from = 0) const {
    for (std::size_t i = from; i < log.size(); ++i) {
      if (log[i].starts_with(op + " ") && has(log[i], part)) return i;
    }
    return SIZE_MAX;
  }

 private:
  bool count(const char* op, const std::string& path) {
    std::lock_guard lock(mutex_);
    log.push_back(std::string(op) + " " + path);
    return log.size() <= fail_from && log.size() - 1 != fail_only;
  }
  static Error failure(const std::string& path) {
    return Error{ErrorKind::io, "cannot touch " + path + ": injected"};
  }

  std::mutex mutex_;
};

}  // namespace bellows::checkpoint_test
