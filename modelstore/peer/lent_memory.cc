// SPDX-License-Identifier: Apache-2.0
#include "modelstore/peer/lent_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/fd.h"

namespace bellows {

Result<LentMemory> LentMemory::map(int fd, std::uint64_t bytes) {
  struct stat s;
  if (fstat(fd, &s) < 0) return errno_error("look at", "a model's memory");
  const int seals = fcntl(fd, F_GET_SEALS);
  // Memory that could shrink would end whoever reads it.
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || static_cast<std::uint64_t>(s.st_size) < bytes)
    return Error{ErrorKind::invalid, "a model's memory is not sealed, or too small"};
  LentMemory memory;
  // All of it: huge pages can't be mapped in part.
  memory.bytes_ = static_cast<std::size_t>(s.st_size);
  void* data = mmap(nullptr, memory.bytes_, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return errno_error("map", "a model's memory");
  memory.data_ = static_cast<char*>(data);
  return memory;
}

LentMemory::~LentMemory() {
  if (data_) munmap(data_, bytes_);
}

}  // namespace bellows
