// SPDX-License-Identifier: Apache-2.0
// The agent as a program whose Nth allocation fails. The test says which, on the board that it
// shares with the program's ranks.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/fault/program_support.h"
#include "tests/unit/checkpoint/replaced_new.h"

namespace {

bellows::fault_test::Board* map_board() {
  const char* path = std::getenv("BELLOWS_TEST_BOARD");
  const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return nullptr;
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return page == MAP_FAILED ? nullptr : static_cast<bellows::fault_test::Board*>(page);
}

}  // namespace

void* allocate(std::size_t bytes) {
  static bellows::fault_test::Board* const board = map_board();
  if (board && board->restored[0] && board->restored[1] && ++board->made == board->fail_made) {
    return nullptr;
  }
  return std::malloc(bytes ? bytes : 1);
}
