// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/read/step_reader.h"
#include "checkpoint/store/store.h"
#include "common/result.h"
#include "launcher/ckpt/place.h"

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
  std::string value;                ///< of a value: its bytes, and no piece

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

/// Elements of an array in row-major order, whoever stored them, and where they go.
struct Slice {
  const StoredArray* array = nullptr;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::uint64_t offset = 0;  ///< in memory

  std::uint64_t bytes() const { return count * wire::element_bytes(array->type.dtype); }
};

/// Cuts arrays into slices that follow each other, and these into batches of at most `budget` bytes
/// of memory, so that small arrays are read many at a time.
std::vector<std::vector<Slice>> cut_into_batches(const std::vector<const StoredArray*>& arrays,
                                                 std::uint64_t budget);

/// Everything in a step, for tools: arrays by name and slices of them in memory that is bounded.
class StepContents {
 public:
  /// Holds manifest and indexes to their digests, and checks that the parts make whole arrays.
  /// corrupt: the sentence names the file.
  static Result<StepContents> open(const StepPlace& place);

  const Manifest& manifest() const { return manifest_; }
  /// By name, one rank's own by rank.
  const std::vector<StoredArray>& arrays() const { return arrays_; }
  const StepReader& reader() const { return *reader_; }

  /// Fills memory with all slices, verifying what it reads.
  Status read(const std::vector<Slice>& slices, unsigned char* to) const;

 private:
  StepPlace place_;
  Manifest manifest_;
  std::shared_ptr<const StepReader> reader_;
  std::vector<StoredArray> arrays_;
};

}  // namespace bellows
