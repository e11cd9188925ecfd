// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/system/file_piece.h"
#include "checkpoint/system/shared_memory.h"

namespace bellows {

/// A shard file that was written, as it still lies in memory. A hint where to read sooner: the rank
/// may have written there since, so nothing of it counts before it matches its digest.
struct ShardCopy {
  std::uint64_t step = 0;
  ShardFile file;                              ///< as the manifest lists it
  std::vector<FilePiece> pieces;               ///< ascending; they cover the file
  std::shared_ptr<const void> skeleton;        ///< owns what lies between the arrays
  std::shared_ptr<const SharedMemory> arrays;  ///< the rank's snapshot
};

/// By rank.
using ShardCopies = std::map<std::uint32_t, std::shared_ptr<const ShardCopy>>;

/// What ranks that have left leave in memory, until the attempt after theirs has committed a step.
/// One thread at a time.
class KeptCopies {
 public:
  void keep(std::shared_ptr<const ShardCopy> copy);
  /// Forgets all other steps.
  void keep_only(std::uint64_t step);
  void drop_older(std::uint64_t step);
  void drop(std::uint32_t rank) { copies_.erase(rank); }
  void clear() { copies_.clear(); }

  bool has(std::uint32_t rank) const { return copies_.contains(rank); }
  ShardCopies of(std::uint64_t step) const;
  /// Of the snapshots.
  std::uint64_t bytes() const;

 private:
  std::map<std::uint32_t, std::map<std::uint64_t, std::shared_ptr<const ShardCopy>>> copies_;
};

}  // namespace bellows
