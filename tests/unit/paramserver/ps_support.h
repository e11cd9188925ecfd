// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace bellows::ps_test {

inline bool eventually(const std::function<bool()>& holds,
                       std::chrono::seconds limit = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// How often words are in a text.
inline std::size_t count_of(const std::string& words, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(words, at)) != std::string::npos; ++at) ++count;
  return count;
}

/// One number for each gradient's element, so that a sum of some of them tells which they are.
inline std::uint64_t mark_bits(std::uint32_t learner, std::uint32_t sequence,
                               std::uint64_t element) {
  const std::uint64_t x =
      (std::uint64_t{learner} << 32 | sequence) * 0x9e37'79b9'7f4a'7c15 + element;
  return (x ^ x >> 29) * 0xbf58'476d'1ce4'e5b9;
}

}  // namespace bellows::ps_test
