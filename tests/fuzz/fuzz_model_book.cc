// SPDX-License-Identifier: Apache-2.0
/// Events for a tier of the model store, three bytes each: it decides as the slow book of the unit
/// tests does, and keeps its promises.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/unit/modelstore/book_world.h"

namespace {

/// How often each thing was decided over all inputs.
std::map<std::string, std::uint64_t> decided;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using bellows::EvictionPolicy;
  if (size == 0) return 0;
  bellows::model_test::BookWorld world(static_cast<EvictionPolicy>(data[0] % 4),
                                       data[0] & 4 ? 100 : 0);
  for (std::size_t i = 1; i + 2 < size; i += 3) {
    if (world.step(data[i], data[i + 1], data[i + 2])) continue;
    std::fprintf(stderr, "%s\n", world.trouble().c_str());
    std::abort();
  }
  for (const auto& [what, times] : world.decided()) decided[what] += times;
  return 0;
}

extern "C" bool fuzz_target_came_far() {
  bool far = true;
  for (const char* what : {"load", "fill", "abandon", "evict", "grant", "refuse"}) {
    std::printf("%s: %llu\n", what, static_cast<unsigned long long>(decided[what]));
    far &= decided[what] > 500;
  }
  return far;
}
