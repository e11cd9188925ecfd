// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/array_part.h"
#include "checkpoint/format/digest.h"
#include "common/result.h"

namespace bellows {

/// An array's part in a shard file: where its bytes begin.
struct StoredPart {
  ArrayPart part;
  std::uint64_t offset = 0;
};

/// A small array that the index itself holds.
struct StoredValue {
  ArrayPart part;
  std::string bytes;
};

/// Which arrays a rank registered that all ranks are to have, stored by it or not: of each layout
/// the sum of the names' digests, so that their order does not matter.
struct HeldNames {
  Hash128 replicated;
  Hash128 values;
  bool operator==(const HeldNames&) const = default;

  void add(const ArrayPart& part);
};

/// What one shard file holds and the digests of its blocks. A value; FORMAT.md describes its text.
struct ShardIndex {
  /// Bytes of a block of the files that are written; others may be read.
  static constexpr std::uint64_t kBlock = 4 << 20;
  static constexpr std::uint64_t kLeastBlock = 1 << 20;
  static constexpr std::uint64_t kMostBlock = 16 << 20;

  std::uint64_t step = 0;
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint64_t size = 0;  ///< bytes of the shard file
  std::uint64_t block = kBlock;
  std::vector<Hash128> digests;  ///< of each block; the last may be short
  std::vector<StoredPart> arrays;
  std::vector<StoredValue> values;
  std::optional<HeldNames> held;  ///< nothing: the commit does not compare names

  std::uint64_t block_bytes(std::uint64_t number) const {
    return std::min(block, size - number * block);
  }

  /// corrupt: the text is not an index, or contradicts itself.
  static Result<ShardIndex> parse(std::string_view text);
  std::string to_string() const;
};

}  // namespace bellows
