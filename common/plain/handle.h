// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace bellows::plain {

/// Owns one file descriptor.
class Handle {
 public:
  Handle() = default;
  explicit Handle(int fd) : fd_(fd) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(-1); }
  int get() const { return fd_; }
  void reset(int fd);
  int release();

 private:
  int fd_ = -1;
};

/// Owns one mapping.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }
  void reset();
  /// Maps `bytes` of the memfd; false (errno set) when that fails or the memfd is smaller.
  bool map(int fd, std::size_t bytes, int protection);
  /// Likewise; pages come when they are read or written.
  bool map_lazily(int fd, std::size_t bytes, int protection);
  /// Likewise, all of it and to be read only; pages come when they are read.
  bool map_for_reading(int fd);
  /// Likewise, and what is written to it goes into copies of the pages.
  bool map_privately(int fd);
  unsigned char* data() const { return static_cast<unsigned char*>(data_); }
  std::size_t size() const { return size_; }

 private:
  bool map_part(int fd, std::size_t bytes, int protection, int flags);
  bool map_all(int fd, int protection, int flags);

  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace bellows::plain
