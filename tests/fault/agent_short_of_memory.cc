// SPDX-License-Identifier: Apache-2.0
// The agent as a program whose Nth allocation fails. The test says which, on the board that it
// shares with the program's ranks.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#include "tests/fault/program_support.h"

namespace {

bellows::fault_test::Board* map_board() {
  const char* path = std::getenv("BELLOWS_TEST_BOARD");
  const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return nullptr;
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return page == MAP_FAILED ? nullptr : static_cast<bellows::fault_test::Board*>(page);
}

void* allocate(std::size_t bytes) {
  static bellows::fault_test::Board* const board = map_board();
  if (board && board->restored[0] && board->restored[1] && ++board->made == board->fail_made) {
    return nullptr;
  }
  return std::malloc(bytes ? bytes : 1);
}

}  // namespace

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
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
