// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <new>

// Makes all allocations of a program go through allocate(), which may fail. To be included by one
// source of it.

/// What operator new gives; nullptr: there is no memory just now.
void* allocate(std::size_t bytes);

// As the standard has it: a new handler may find some memory.
void* operator new(std::size_t bytes) {
  while (true) {
    if (void* memory = allocate(bytes)) return memory;
    const std::new_handler find_some = std::get_new_handler();
    if (!find_some) throw std::bad_alloc();
    find_some();
  }
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
  return operator new(bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}
// Where one is inlined, gcc warns that the other half is not the one that belongs to it.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
