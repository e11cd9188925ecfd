// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "checkpoint/wire/wire.h"

/// The library's own small tools: it may need libc only, so no std:: containers here.
namespace bellows::client {

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

/// Owns one shared mapping.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }
  void reset();
  /// Maps `bytes` of the memfd; false (errno set) when that fails or the memfd is smaller.
  bool map(int fd, std::size_t bytes, int protection);
  /// Likewise, all of it and to be read only; pages come when they are read.
  bool map_for_reading(int fd);
  unsigned char* data() const { return static_cast<unsigned char*>(data_); }
  std::size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A message as it came: the body is followed by a zero byte.
struct Message {
  wire::Head head;
  char body[wire::kMostMessage + 1];
  Handle fd;

  /// The sentence of a failed message.
  const char* why() const { return body[0] ? body : "the agent does not say why"; }
};

/// 0 or an errno value.
int connect_to(const char* path, Handle* out);
int send_message(int fd, wire::Head head, const void* body, std::size_t length, const void* tail,
                 std::size_t tail_length);
/// 0, an errno value, EPIPE when the other side is gone, EPROTO when it speaks another protocol.
int receive_message(int fd, Message* message);
/// True when the other side has closed.
bool hung_up(int fd);

}  // namespace bellows::client
