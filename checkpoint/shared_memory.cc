// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace bellows {

Result<std::shared_ptr<SharedMemory>> SharedMemory::make(std::uint64_t bytes,
                                                         std::shared_ptr<MemoryBin> bin) {
  if (bin) bin->wait_until_empty();
  const std::uint64_t size = (std::max<std::uint64_t>(bytes, 1) + 4095) & ~std::uint64_t{4095};
  Fd fd(memfd_create("bellows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  auto failed = [&](const char* what) {
    return Error{ErrorKind::unavailable, fmt::format("cannot {} {} bytes of shared memory: {}",
                                                     what, size, std::strerror(errno))};
  };
  if (!fd) return failed("make");
  int rc;
  do {
    rc = fallocate(fd.get(), 0, 0, static_cast<off_t>(size));
  } while (rc < 0 && errno == EINTR);
  if (rc < 0) return failed("reserve");
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
    return failed("seal");
  }
  auto memory = std::make_unique<SharedMemory>(std::move(fd), size);
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd(), 0);
  if (data == MAP_FAILED) return failed("map");
  memory->data_ = static_cast<unsigned char*>(data);
  if (!bin) return std::shared_ptr<SharedMemory>(std::move(memory));
  return std::shared_ptr<SharedMemory>(memory.release(),
                                       [bin](SharedMemory* last) { bin->take(last); });
}

SharedMemory::~SharedMemory() {
  if (data_) munmap(data_, size_);
}

Result<std::unique_ptr<ControlPage>> ControlPage::make(std::uint64_t gate, std::uint64_t stop) {
  auto memory = SharedMemory::make(wire::kControlBytes);
  if (!memory) return memory.error();
  auto page = std::make_unique<ControlPage>(std::move(*memory));
  page->page()->step = wire::kNoStep;
  page->page()->gate = gate;
  page->page()->stop = stop;
  return page;
}

void ControlPage::set_gate(std::uint64_t gate) {
  page()->gate.store(gate);
  wake();
}

void ControlPage::set_stop(std::uint64_t stop) {
  page()->stop.store(stop);
  wake();
}

void ControlPage::wake() {
  page()->wake.fetch_add(1);
  syscall(SYS_futex, &page()->wake, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace bellows
