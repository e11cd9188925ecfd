// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/result.h"

namespace bellows {

/// A model's sealed memory, mapped for reading.
class LentMemory {
 public:
  /// All of it, of which the model takes `bytes`. The descriptor stays the caller's.
  static Result<LentMemory> map(int fd, std::uint64_t bytes);
  LentMemory(LentMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  LentMemory& operator=(LentMemory&&) = delete;
  ~LentMemory();

  const char* data() const { return data_; }

 private:
  LentMemory() = default;
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace bellows
