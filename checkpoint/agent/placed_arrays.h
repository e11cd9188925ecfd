// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/format/array_part.h"

namespace bellows {

/// The arrays of a rank, which it names one by one.
struct NamedArrays {
  std::vector<ArrayPart> parts;
  std::uint64_t expected = 0;

  bool complete() const { return parts.size() == expected; }
};

/// Arrays and their places in a buffer.
struct Placed {
  std::vector<ArrayPart> parts;
  std::vector<std::uint64_t> offsets;
  std::uint64_t total = 0;
};

/// Where the library puts the arrays in a buffer; false when they pass 2^62 bytes.
bool place_parts(const std::vector<ArrayPart>& parts, Placed* out);

}  // namespace bellows
