// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/node_restore.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/format/digest.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/store/store.h"
#include "checkpoint/system/block_workers.h"
#include "checkpoint/system/retry.h"

namespace bellows {
namespace {

bool same(const wire::Array& a, const wire::Array& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

/// One rank's restore on its way.
struct NodeRestore::Reading {
  std::uint32_t rank;
  const Placed& placed;
  std::shared_ptr<const StepReader> reader;
  std::shared_ptr<SharedMemory> memory;
  ShardCopies copies;
  ReadCount* count;
  BlockOffers* offers;
  std::vector<bool> there;  ///< which arrays are in memory

  unsigned char* flags() const { return memory->data() + wire::flags_offset(placed.total); }

  /// Reads the arrays that are not there, all or only the replicated ones.
  Status read(bool replicated_only) {
    Wanted wanted;
    wanted.offers = replicated_only ? nullptr : offers;
    wanted.memory = memory.get();
    std::vector<std::size_t> numbers;
    wanted.rank = rank;
    wanted.copies = copies;
    wanted.count = count;
    wanted.data = memory->data();
    for (std::size_t i = 0; i < placed.parts.size(); ++i) {
      if (there[i]) continue;
      if (replicated_only && placed.parts[i].array.layout != wire::kReplicated) continue;
      wanted.parts.push_back(placed.parts[i]);
      wanted.offsets.push_back(placed.offsets[i]);
      numbers.push_back(i);
    }
    auto kept = reader->read(wanted);
    if (!kept) return kept.error();
    for (const std::size_t i : numbers) there[i] = true;
    for (const std::size_t i : *kept) flags()[numbers[i]] = 0;
    return {};
  }

  bool all_in_memory() const {
    const Manifest& manifest = reader->manifest();
    return std::all_of(manifest.shards.begin(), manifest.shards.end(), [&](const ShardFile& shard) {
      const auto copy = copies.find(shard.rank);
      return copy != copies.end() && copy->second->step == manifest.step &&
             copy->second->file == shard;
    });
  }

  /// Pages for the replicated arrays.
  Status reserve_replicated() const {
    for (std::size_t i = 0; i < placed.parts.size(); ++i) {
      if (placed.parts[i].array.layout != wire::kReplicated) continue;
      auto status = memory->reserve(placed.offsets[i], placed.parts[i].bytes());
      if (!status) return status;
    }
    return {};
  }

  void write_blocks() const {
    if (offers->blocks.empty()) return;
    unsigned char* to = memory->data() + wire::blocks_offset(placed.total, placed.parts.size());
    std::memcpy(to, offers->blocks.data(), offers->blocks.size() * sizeof(wire::Block));
  }

  /// Leaves an array to the rank; false where it can't be.
  bool offer(const First& first, std::size_t i, std::size_t number) {
    if (!offers) return false;
    const auto blocks = first.blocks.find(number);
    if (blocks == first.blocks.end()) return false;
    if (offers->sources.empty()) {
      first.memory->refuse_writers();
      auto readable = first.memory->reader();
      if (!readable) return false;
      offers->sources.push_back({wire::Source::memory, std::move(*readable)});
    }
    for (wire::Block block : blocks->second) {
      block.to += placed.offsets[i];
      offers->blocks.push_back(block);
    }
    return true;
  }

  Status take_from(const First& first) {
    for (std::size_t i = 0; i < placed.parts.size(); ++i) {
      const ArrayPart& part = placed.parts[i];
      if (part.array.layout != wire::kReplicated) continue;
      const auto other = first.numbers.find(part.name);
      if (other == first.numbers.end()) continue;
      if (!same(first.placed.parts[other->second].array, part.array)) continue;
      there[i] = true;
      if (offer(first, i, other->second)) continue;
      // With offers it has no pages yet.
      auto status = offers ? memory->reserve(placed.offsets[i], part.bytes()) : Status();
      if (!status) return status;
      std::memcpy(memory->data() + placed.offsets[i],
                  first.memory->data() + first.placed.offsets[other->second], part.bytes());
    }
    return {};
  }
};

// As large as those of files, so that no more come together than there is room for.
Status NodeRestore::First::digest_blocks() {
  std::map<std::size_t, std::vector<wire::Block>> made;
  std::vector<wire::Block*> all;
  for (std::size_t i = 0; i < placed.parts.size(); ++i) {
    const std::uint64_t bytes = placed.parts[i].bytes();
    if (placed.parts[i].array.layout != wire::kReplicated || bytes < ShardIndex::kLeastBlock)
      continue;
    std::vector<wire::Block>& of_array = made[i];
    for (wire::Block block; block.to < bytes; block.to += block.bytes) {
      block.from = placed.offsets[i] + block.to;
      block.bytes = std::min(ShardIndex::kBlock, bytes - block.to);
      if (bytes - block.to - block.bytes < kLeastHashed) block.bytes = bytes - block.to;
      of_array.push_back(block);
    }
    for (wire::Block& block : of_array) all.push_back(&block);
  }
  const auto digest = [&](std::uint64_t number, unsigned char*) {
    wire::Block& block = *all[number];
    const Hash128 hash = hash_of(memory->data() + block.from, block.bytes);
    block.digest = {hash.high, hash.low};
    return Status();
  };
  auto done = work_on_blocks(all.size(), 1, "digesting restored arrays", digest);
  if (!done) return done;
  blocks = std::move(made);
  digested = true;
  return {};
}

Result<std::shared_ptr<const StepReader>> NodeRestore::open() {
  std::lock_guard lock(mutex_);
  if (reader_) return reader_;
  if (auto status = check_place(place_); !status) return status.error();
  auto reader = open_step(place_.dir, step_);
  if (reader) reader_ = *reader;
  return reader;
}

Status NodeRestore::read_replicated(Reading& reading) {
  std::unique_lock lock(first_mutex_);
  if (const std::shared_ptr<First> first = first_) {
    if (reading.offers && !first->digested) {
      if (auto status = first->digest_blocks(); !status) return status;
    }
    lock.unlock();
    return reading.take_from(*first);
  }
  if (reading.offers) {
    if (auto status = reading.reserve_replicated(); !status) return status;
  }
  if (auto status = reading.read(true); !status) return status;
  auto first = std::make_shared<First>(First{reading.rank, reading.memory, reading.placed, {}});
  for (std::size_t i = 0; i < first->placed.parts.size(); ++i) {
    first->numbers[first->placed.parts[i].name] = i;
  }
  first_ = std::move(first);
  return {};
}

void NodeRestore::note_done(std::uint32_t rank) {
  {
    std::lock_guard lock(mutex_);
    done_.insert(rank);
    if (done_.size() < ranks_) return;
    copies_.clear();
  }
  std::lock_guard lock(first_mutex_);
  first_.reset();
}

bool NodeRestore::is_over() {
  std::lock_guard lock(mutex_);
  return done_.size() >= ranks_;
}

void NodeRestore::drop_copy(std::uint32_t rank) {
  std::lock_guard lock(mutex_);
  copies_.erase(rank);
}

bool NodeRestore::holds_memory_of(std::uint32_t rank) {
  // While it is locked the first one's memory may be read or digested, for which nobody waits here.
  std::unique_lock lock(first_mutex_, std::try_to_lock);
  return !lock || (first_ && first_->rank == rank);
}

ShardCopies NodeRestore::copies() {
  std::lock_guard lock(mutex_);
  return copies_;
}

// What all ranks want is read by one of them, unless they all can copy it from where it lies.
Status NodeRestore::read_all(Reading& reading) {
  if (ranks_ > 1 && !(reading.offers && reading.all_in_memory())) {
    if (auto status = read_replicated(reading); !status) return status;
  }
  return reading.read(false);
}

Result<std::shared_ptr<SharedMemory>> NodeRestore::read(std::uint32_t rank, const Placed& placed,
                                                        ReadCount* count, BlockOffers* offers) {
  return read_with_patience([&] {
    if (count) count->memory = count->store = 0;
    if (offers) {
      offers->sources.clear();
      offers->blocks.clear();
    }
    return read_once(rank, placed, count, offers);
  });
}

Result<std::shared_ptr<SharedMemory>> NodeRestore::read_once(std::uint32_t rank,
                                                             const Placed& placed, ReadCount* count,
                                                             BlockOffers* offers) {
  auto reader = open();
  if (!reader) return reader.error();
  const std::size_t arrays = placed.parts.size();
  ShardCopies in_memory = copies();
  // Of each shard the last block may be small.
  const std::uint64_t blocks =
      offers ? placed.total / ShardIndex::kLeastBlock + (*reader)->shards().size() : 0;
  const std::uint64_t bytes =
      wire::blocks_offset(placed.total, arrays) + blocks * sizeof(wire::Block);
  // Little is needed where the rank copies from what is there already.
  if (offers && in_memory.empty() && bin_) bin_->wait_until_empty();
  auto memory = offers ? SharedMemory::make_empty(bytes, bin_) : SharedMemory::make(bytes, bin_);
  if (!memory) return memory;
  Reading reading{rank,
                  placed,
                  *reader,
                  *memory,
                  std::move(in_memory),
                  count,
                  offers,
                  std::vector<bool>(arrays)};
  std::memset(reading.flags(), 1, arrays);
  if (auto status = read_all(reading); !status) return status.error();
  if (offers) reading.write_blocks();
  note_done(rank);
  return memory;
}

}  // namespace bellows
