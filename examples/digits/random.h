// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace digits {

/// SplitMix64. The standard library's distributions and shuffle may differ from one library to the
/// next; these numbers are the same everywhere, so a job may resume on another machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// 0 to bound - 1; the bias is below bound / 2^64.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

  /// -1 to 1.
  float symmetric() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }

  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace digits
