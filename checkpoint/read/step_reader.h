// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/format/index.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/read/block_offers.h"
#include "checkpoint/read/block_reader.h"
#include "common/result.h"

namespace bellows {

/// Parts of arrays that a rank wants, and where each goes.
struct Wanted {
  std::uint32_t rank = 0;
  std::vector<ArrayPart> parts;
  std::vector<std::uint64_t> offsets;  ///< of each part in data
  unsigned char* data = nullptr;       ///< for reading past the page cache: at a multiple of 4096
  ShardCopies copies{};                ///< shards that are in memory too, perhaps of other steps
  ReadCount* count = nullptr;
  BlockOffers* offers = nullptr;   ///< gets what the rank can read itself, rather than data
  SharedMemory* memory = nullptr;  ///< with offers: what data is in, without pages yet
  std::vector<ReadFile> files{};   ///< by rank: how to read shards that are open; empty: by path
  Progress progress{};
};

/// The arrays of one step, read for any number of ranks. Immutable once open: safe for several
/// threads.
class StepReader {
 public:
  /// Reads the index of every shard of `step_dir` and holds it against the manifest, which was
  /// verified before.
  static Result<std::shared_ptr<const StepReader>> open(const std::string& step_dir,
                                                        const Manifest& manifest);

  /// The same of indexes that were read before, by rank, one for each of the manifest's shards.
  static std::shared_ptr<const StepReader> of(const std::string& step_dir, const Manifest& manifest,
                                              std::vector<ShardIndex> shards);

  /// Whether every array is whole: all of its axis in exactly one shard, types agreeing, and none
  /// left to a rank that does not know it. invalid: says which array and what of it.
  Status check_whole() const;

  /// Fills what is wanted, verifying every byte. The value: which parts, by number, keep what the
  /// program registered, since this rank had no such per-rank array. invalid: an array is missing
  /// or has another type or shape; corrupt, io: the files.
  Result<std::vector<std::size_t>> read(const Wanted& wanted) const;

  /// Reads and verifies every block of every shard.
  Status verify(const Progress& progress = {}) const;

  const Manifest& manifest() const { return manifest_; }
  /// What each rank stored, by rank.
  const std::vector<ShardIndex>& shards() const { return shards_; }

 private:
  struct Piece {
    std::uint32_t rank;
    const StoredPart* stored;
  };
  struct Named {
    std::vector<Piece> pieces;  ///< by ascending first; per rank: by rank
    const StoredValue* value = nullptr;

    const ArrayPart& part() const { return value ? value->part : pieces.front().stored->part; }
  };

  Status check_array(const std::string& name, const Named& named) const;
  Status check_names() const;
  Result<const Named*> find(const ArrayPart& wanted) const;
  /// Plans one part; false: it keeps what it has.
  Result<bool> plan(const Wanted& wanted, std::size_t i, std::vector<FilePlan>* files) const;
  std::string shard_path(std::uint32_t rank) const;

  std::string step_dir_;
  Manifest manifest_;
  std::vector<ShardIndex> shards_;
  std::map<std::string, Named> arrays_;
};

}  // namespace bellows
