// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/array_part.h"
#include "checkpoint/shard_file.h"
#include "checkpoint/store.h"
#include "common/result.h"
#include "launcher/ckpt_place.h"
#include "launcher/ckpt_progress.h"

namespace bellows {

/// What one rank's shard holds of an array.
struct StoredPiece {
  std::uint32_t rank = 0;
  std::uint64_t first = 0;  ///< of the array's axis
  std::uint64_t count = 0;
  std::uint64_t offset = 0;  ///< in the shard's file
};

/// A whole array of a step, or one rank's own.
struct StoredArray {
  std::string name;
  wire::Array type;                 ///< as a rank that holds all of it would register it
  std::vector<StoredPiece> pieces;  ///< each index of the axis once, ascending

  std::uint64_t elements() const;
  std::uint64_t bytes() const { return elements() * wire::element_bytes(type.dtype); }
  bool per_rank() const { return type.layout == wire::kPerRank; }
  /// The name, for one rank's own array with the rank: "rng of rank 3".
  std::string title() const;
  /// "f32[10,5]"
  std::string type_text() const { return ArrayPart{name, type}.type_text(); }
  /// "replicated", "sharded along axis 1", "rank 3's own", "value"
  std::string layout_text() const;
};

/// Everything in a step, for tools: arrays by name and pieces of them in memory that is bounded.
class StepContents {
 public:
  /// Verifies the step first. corrupt: the sentence names the file.
  static Result<StepContents> open(const StepPlace& place, ProgressBar& progress);

  const Manifest& manifest() const { return manifest_; }
  /// By name, one rank's own by rank.
  const std::vector<StoredArray>& arrays() const { return arrays_; }
  std::uint64_t bytes() const;

  /// The elements first .. first + count - 1 of the array in row-major order, whole axes whoever
  /// stored them.
  Status read(const StoredArray& array, std::uint64_t first, std::uint64_t count,
              unsigned char* to) const;

 private:
  Status read_line(const StoredArray& array, std::uint64_t line, std::uint64_t first,
                   std::uint64_t count, unsigned char* to) const;
  Status read_lines(const StoredArray& array, std::uint64_t line, std::uint64_t lines,
                    unsigned char* to) const;
  Status read_piece(const StoredArray& array, const StoredPiece& piece, std::uint64_t first,
                    std::uint64_t count, unsigned char* to) const;

  StepPlace place_;
  Manifest manifest_;
  std::vector<StoredArray> arrays_;
};

}  // namespace bellows
