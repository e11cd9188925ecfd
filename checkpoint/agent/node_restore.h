// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/agent/placed_arrays.h"
#include "checkpoint/read/block_offers.h"
#include "checkpoint/read/step_reader.h"
#include "checkpoint/store/store_place.h"
#include "checkpoint/system/shared_memory.h"
#include "common/result.h"

namespace bellows {

/// Restores one step for the ranks of one node. What they all want is read once, by the first that
/// asks; the others copy it from the first one's memory, which is kept until the last has it. Those
/// that take offers copy large arrays themselves, so that a node holds these once and not for each.
class NodeRestore {
 public:
  /// `copies`: shards of this node's memory, read rather than the store. `bin`: for what is made.
  NodeRestore(StorePlace place, std::uint64_t step, std::size_t ranks, ShardCopies copies = {},
              std::shared_ptr<MemoryBin> bin = {})
      : place_(std::move(place)),
        step_(step),
        ranks_(ranks),
        bin_(std::move(bin)),
        copies_(std::move(copies)) {}

  std::uint64_t step() const { return step_; }
  /// What a rank wants, in memory for it: its arrays, then their flags. `count`: what was read for
  /// it. `offers` gets what the rank is to read itself; the memory has holes there, and says so
  /// behind the flags. Safe for several threads. corrupt, invalid: of the step; else it was tried
  /// several times.
  Result<std::shared_ptr<SharedMemory>> read(std::uint32_t rank, const Placed& placed,
                                             ReadCount* count = nullptr,
                                             BlockOffers* offers = nullptr);
  /// Whether all ranks have it.
  bool is_over();
  /// The rank saves again: its copy's memory is needed elsewhere.
  void drop_copy(std::uint32_t rank);
  /// Whether what this rank was given is kept for ranks that are slower; also where that is not
  /// known at once.
  bool holds_memory_of(std::uint32_t rank);

 private:
  /// The memory of the rank that was first, once its replicated arrays are in it.
  struct First {
    std::uint32_t rank;
    std::shared_ptr<SharedMemory> memory;
    Placed placed;
    std::map<std::string, std::size_t> numbers;  ///< of the arrays, by name
    /// Of large arrays, by number, what others copy themselves; `to` counts from the array.
    std::map<std::size_t, std::vector<wire::Block>> blocks{};
    bool digested = false;

    Status digest_blocks();
  };
  struct Reading;

  Result<std::shared_ptr<SharedMemory>> read_once(std::uint32_t rank, const Placed& placed,
                                                  ReadCount* count, BlockOffers* offers);
  Result<std::shared_ptr<const StepReader>> open();
  Status read_all(Reading& reading);
  Status read_replicated(Reading& reading);
  void note_done(std::uint32_t rank);
  ShardCopies copies();

  const StorePlace place_;
  const std::uint64_t step_;
  const std::size_t ranks_;
  const std::shared_ptr<MemoryBin> bin_;
  std::mutex mutex_;  ///< guards what follows
  ShardCopies copies_;
  std::shared_ptr<const StepReader> reader_;
  std::set<std::uint32_t> done_;
  std::mutex first_mutex_;  ///< held while the first rank reads what all want
  std::shared_ptr<First> first_;
};

}  // namespace bellows
