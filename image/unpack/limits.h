// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace bellows::image {

/// What an image may cost at most: its author may be anyone. A value.
struct Limits {
  std::uint64_t bytes = std::uint64_t{256} << 30;  ///< of all its layers, unpacked
  std::uint64_t entries = 4'000'000;
  std::size_t name_bytes = 4095;
  std::size_t depth = 256;  ///< directories above a file
};

/// What the layers so far took of it.
struct Tally {
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
  std::uint64_t left_out = 0;  ///< devices and the like, which a user can't have
};

}  // namespace bellows::image
