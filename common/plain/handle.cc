// SPDX-License-Identifier: Apache-2.0
#include "common/plain/handle.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace bellows::plain {

void Handle::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

int Handle::release() {
  int fd = fd_;
  fd_ = -1;
  return fd;
}

void Mapping::reset() {
  if (data_) munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

static void* map_file(int fd, std::size_t bytes, int protection, int flags) {
  void* data = mmap(nullptr, bytes, protection, flags, fd, 0);
  return data == MAP_FAILED ? nullptr : data;
}

bool Mapping::map(int fd, std::size_t bytes, int protection) {
  // All of it is used at once: one call is several times faster than a fault for each page.
  return map_part(fd, bytes, protection, MAP_SHARED | MAP_POPULATE);
}

bool Mapping::map_lazily(int fd, std::size_t bytes, int protection) {
  return map_part(fd, bytes, protection, MAP_SHARED);
}

bool Mapping::map_part(int fd, std::size_t bytes, int protection, int flags) {
  reset();
  off_t size = lseek(fd, 0, SEEK_END);
  if (size < 0) return false;
  if (static_cast<std::uint64_t>(size) < bytes || bytes == 0) {
    errno = EPROTO;
    return false;
  }
  data_ = map_file(fd, bytes, protection, flags);
  if (data_) size_ = bytes;
  return data_;
}

bool Mapping::map_all(int fd, int protection, int flags) {
  reset();
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size <= 0) return false;
  data_ = map_file(fd, static_cast<std::size_t>(size), protection, flags);
  if (data_) size_ = static_cast<std::size_t>(size);
  return data_;
}

bool Mapping::map_for_reading(int fd) { return map_all(fd, PROT_READ, MAP_SHARED); }

bool Mapping::map_privately(int fd) {
  // Few pages are ever copied, so no memory is set aside for all of them.
  return map_all(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE);
}

}  // namespace bellows::plain
