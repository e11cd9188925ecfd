// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace bellows {

/// Some memory for the thread that makes it, which goes to operator new when there is none else. An
/// agent's main thread allocates little, and in the middle of a change there is no way back; JSON
/// values allocate when they are destroyed, where nothing may be thrown. What is larger, or comes
/// after, gets std::bad_alloc as usual. One for each thread at a time; used by that thread.
class MemoryReserve {
 public:
  MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;
  ~MemoryReserve();

  /// After a use, as soon as there is memory again. Call it often.
  void refill();
  bool full() const { return block_ != nullptr; }

 private:
  static void give();

  void* block_ = nullptr;
};

/// Throws std::bad_alloc unless there are so many bytes now: for building JSON values, which do not
/// survive that half-way.
void need_memory(std::size_t bytes);

}  // namespace bellows
