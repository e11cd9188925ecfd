// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>

namespace bellows {

/// Numbers that are the same everywhere.
class Dice {
 public:
  explicit Dice(std::uint32_t seed) : engine_(seed) {}
  std::uint32_t up_to(std::uint32_t most) {
    return static_cast<std::uint32_t>(engine_() % (most + 1));
  }

 private:
  std::mt19937 engine_;
};

}  // namespace bellows
