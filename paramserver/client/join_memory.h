// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "common/plain/handle.h"

namespace bellows::ps {

/// A memfd of all that is written to it.
class JoinMemory {
 public:
  JoinMemory() : fd_(memfd_create("bellows-ps-join", MFD_CLOEXEC)) {}
  /// False (errno set): there is no memory.
  bool add(const void* data, std::size_t bytes) {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = pwrite(fd_.get(), from, bytes, static_cast<off_t>(size_));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      from += written;
      size_ += static_cast<std::uint64_t>(written);
      bytes -= static_cast<std::size_t>(written);
    }
    return true;
  }
  bool pad_to(std::uint64_t bytes) {
    size_ = bytes;
    return ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0;
  }
  std::uint64_t size() const { return size_; }
  int fd() const { return fd_.get(); }

 private:
  plain::Handle fd_;
  std::uint64_t size_ = 0;
};

}  // namespace bellows::ps
