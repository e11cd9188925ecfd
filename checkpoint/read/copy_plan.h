// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/format/index.h"

namespace bellows {

/// Bytes of a file that go to memory: `outer.count` times `inner.count` runs of `bytes` each.
struct Copy {
  struct Level {
    std::uint64_t count = 1;
    std::uint64_t from = 0;  ///< how far the next one is in the file
    std::uint64_t to = 0;    ///< and in memory
  };
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  Level outer;
  Level inner;
  unsigned char* to = nullptr;
  bool may_offer = true;  ///< a rank may read it itself, in place

  std::uint64_t total() const { return bytes * inner.count * outer.count; }
  /// Past the last byte in the file.
  std::uint64_t end() const {
    return offset + (outer.count - 1) * outer.from + (inner.count - 1) * inner.from + bytes;
  }
};

/// What a stored part holds of a wanted part that lies at `to`; nothing when they don't overlap.
/// The whole arrays are of one type and shape; the axes may differ.
std::optional<Copy> plan_copy(const StoredPart& stored, const wire::Array& wanted,
                              unsigned char* to);

/// Copies what a copy wants of the file's bytes from `begin` to `end`, which lie at `data`.
void copy_out(const Copy& copy, std::uint64_t begin, std::uint64_t end, const unsigned char* data);

/// Whether a copy wants any of the file's bytes from `begin` to `end`.
bool touches(const Copy& copy, std::uint64_t begin, std::uint64_t end);

}  // namespace bellows
