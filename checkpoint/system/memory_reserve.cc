// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/system/memory_reserve.h"

#include <cstdlib>
#include <new>

namespace bellows {
namespace {

// Less than what malloc maps from the kernel by itself, so that it stays with this thread's arena.
constexpr std::size_t kBytes = 96 << 10;

thread_local MemoryReserve* of_this_thread = nullptr;

}  // namespace

MemoryReserve::MemoryReserve() {
  of_this_thread = this;
  std::set_new_handler(give);
  refill();
}

MemoryReserve::~MemoryReserve() {
  of_this_thread = nullptr;
  std::free(block_);
}

void MemoryReserve::refill() {
  if (!block_) block_ = std::malloc(kBytes);
}

// operator new tries again when this returns.
void MemoryReserve::give() {
  if (!of_this_thread || !of_this_thread->block_) throw std::bad_alloc();
  std::free(of_this_thread->block_);
  of_this_thread->block_ = nullptr;
}

// Not a new-expression, which a compiler may leave out.
void need_memory(std::size_t bytes) { ::operator delete(::operator new(bytes)); }

}  // namespace bellows
