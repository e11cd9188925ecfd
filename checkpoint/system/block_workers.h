// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "common/result.h"

namespace bellows {

/// What O_DIRECT asks of offsets, lengths and addresses on every disk there is.
inline constexpr std::uint64_t kSector = 4096;

inline bool is_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kSector == 0;
}

/// Owns memory that O_DIRECT takes.
class AlignedBuffer {
 public:
  /// Holds nothing when there is no memory.
  explicit AlignedBuffer(std::size_t bytes);
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();
  unsigned char* data() const { return data_; }

 private:
  unsigned char* data_;
};

/// Work on one block, with a buffer of its thread's own.
using BlockWork = std::function<Status(std::uint64_t number, unsigned char* buffer)>;

/// Does the work for all numbers below `count`, in ascending order, by several threads. The first
/// failure ends it, once the threads have done what they had begun. `buffer_bytes`: of each
/// thread's buffer; `what`: names the work in the sentence of a lack of memory.
Status work_on_blocks(std::uint64_t count, std::size_t buffer_bytes, const std::string& what,
                      const BlockWork& work);

}  // namespace bellows
