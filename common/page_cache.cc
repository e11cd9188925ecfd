// SPDX-License-Identifier: Apache-2.0
#include "common/page_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace bellows {

bool pages_are_cached(void* begin, std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (reinterpret_cast<std::uintptr_t>(begin) % page != 0) return false;
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  if (mincore(begin, bytes, pages.data()) < 0) return false;
  return std::all_of(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
}

bool is_cached(int fd, std::uint64_t size) {
  void* map = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return false;
  const bool cached = pages_are_cached(map, size);
  munmap(map, size);
  return cached;
}

}  // namespace bellows
