// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/system/shared_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace bellows {

namespace {

Error memory_error(const char* what, std::uint64_t bytes) {
  return Error{ErrorKind::unavailable, fmt::format("cannot {} {} bytes of shared memory: {}", what,
                                                   bytes, std::strerror(errno))};
}

}  // namespace

MadeMemory SharedMemory::make_empty(std::uint64_t bytes, const std::shared_ptr<MemoryBin>& bin) {
  const std::uint64_t size = (std::max<std::uint64_t>(bytes, 1) + 4095) & ~std::uint64_t{4095};
  Fd fd(memfd_create("bellows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(size)) < 0) return memory_error("make", size);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
    return memory_error("seal", size);
  }
  auto memory = std::make_unique<SharedMemory>(std::move(fd), size);
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd(), 0);
  if (data == MAP_FAILED) return memory_error("map", size);
  memory->data_ = static_cast<unsigned char*>(data);
  if (!bin) return std::shared_ptr<SharedMemory>(std::move(memory));
  return std::shared_ptr<SharedMemory>(memory.release(),
                                       [bin](SharedMemory* last) { bin->take(last); });
}

MadeMemory SharedMemory::make(std::uint64_t bytes, const std::shared_ptr<MemoryBin>& bin) {
  if (bin) bin->wait_until_empty();
  auto memory = make_empty(bytes, bin);
  if (!memory) return memory;
  auto reserved = (*memory)->reserve(0, (*memory)->size());
  return reserved ? memory : MadeMemory(reserved.error());
}

Status SharedMemory::reserve(std::uint64_t begin, std::uint64_t bytes) {
  if (bytes == 0) return {};
  int rc;
  do {
    rc = fallocate(fd_.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  } while (rc < 0 && errno == EINTR);
  return rc < 0 ? Status(memory_error("reserve", bytes)) : Status();
}

void SharedMemory::fill_pages() const { (void)madvise(data_, size_, MADV_POPULATE_WRITE); }

void SharedMemory::refuse_writers() const {
  (void)fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
}

Result<Fd> SharedMemory::reader() const {
  return open_file(fmt::format("/proc/self/fd/{}", fd_.get()), O_RDONLY);
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
