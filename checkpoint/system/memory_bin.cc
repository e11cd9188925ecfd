// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/system/memory_bin.h"

#include <utility>

#include "checkpoint/system/shared_memory.h"

namespace bellows {

MemoryBin::MemoryBin() : thread_([this] { empty(); }) {}

MemoryBin::~MemoryBin() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void MemoryBin::take(SharedMemory* memory) noexcept {
  {
    std::lock_guard lock(mutex_);
    memory->next_ = std::exchange(first_, memory);
    bytes_ += memory->size();
  }
  changed_.notify_all();
}

void MemoryBin::wait_until_empty() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return bytes_ == 0; });
}

std::uint64_t MemoryBin::bytes() {
  std::lock_guard lock(mutex_);
  return bytes_;
}

void MemoryBin::empty() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return first_ || ending_; });
    if (!first_) return;
    SharedMemory* const memory = first_;
    first_ = memory->next_;
    lock.unlock();
    const std::uint64_t bytes = memory->size();
    delete memory;
    lock.lock();
    bytes_ -= bytes;
    if (bytes_ == 0) changed_.notify_all();
  }
}

}  // namespace bellows
