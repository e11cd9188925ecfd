// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/format/manifest.h"
#include "checkpoint/read/step_reader.h"
#include "checkpoint/store/store.h"
#include "tests/unit/checkpoint/checkpoint_support.h"

// Whole steps of many arrays, whose every byte says where in the whole array it belongs.
namespace bellows::checkpoint_test {

/// The part of an axis that a rank holds: uneven, and nothing for rank 1 of three or more.
inline wire::Array along(std::vector<std::uint64_t> shape, std::uint32_t axis, std::uint32_t rank,
                         std::uint32_t world) {
  wire::Array a = f32_array(shape, wire::kSharded);
  const Rows rows = rows_of(rank, world, shape[axis]);
  a.axis = axis;
  a.first = rows.first;
  a.count = rows.count;
  return a;
}

/// Calls use(index in the whole array, index in the part) for each element of a part.
inline void for_each_element(const wire::Array& a,
                             const std::function<void(std::uint64_t, std::uint64_t)>& use) {
  std::uint64_t inner = 1, outer = 1;
  for (std::uint32_t i = a.axis + 1; i < a.ndims; ++i) inner *= a.shape[i];
  for (std::uint32_t i = 0; i < a.axis; ++i) outer *= a.shape[i];
  std::uint64_t at = 0;
  for (std::uint64_t o = 0; o < outer; ++o) {
    for (std::uint64_t k = a.first; k < a.first + a.count; ++k) {
      for (std::uint64_t i = 0; i < inner; ++i) {
        use((o * wire::axis_extent(a) + k) * inner + i, at++);
      }
    }
  }
}

/// The bytes a part must have: each is (7 * where it is in the whole array's bytes + dtype), for
/// per-rank arrays with the rank added.
inline std::vector<unsigned char> bytes_of(const ArrayPart& part, std::uint32_t rank) {
  std::vector<unsigned char> out(part.bytes());
  const std::uint64_t size = wire::element_bytes(part.array.dtype);
  const std::uint64_t salt =
      part.array.dtype + (part.array.layout == wire::kPerRank ? 100 * rank : 0);
  for_each_element(part.array, [&](std::uint64_t whole, std::uint64_t at) {
    for (std::uint64_t b = 0; b < size; ++b) {
      out[at * size + b] = static_cast<unsigned char>((whole * size + b) * 7 + salt);
    }
  });
  return out;
}

/// Parts side by side in memory that begins at a multiple of 4096.
class Placed {
 public:
  explicit Placed(std::vector<ArrayPart> given) : parts(std::move(given)) {
    wire::Placer placer;
    for (const ArrayPart& part : parts) {
      std::uint64_t offset = 0;
      if (!placer.place(part.bytes(), &offset)) abort();
      offsets.push_back(offset);
    }
    total = placer.total();
    memory.reset(static_cast<unsigned char*>(aligned_alloc(4096, (total / 4096 + 1) * 4096)));
    memset(memory.get(), 0xee, total);
  }
  void fill(std::uint32_t rank) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto bytes = bytes_of(parts[i], rank);
      if (!bytes.empty()) memcpy(memory.get() + offsets[i], bytes.data(), bytes.size());
    }
  }
  bool holds(std::size_t i, std::uint32_t rank) const {
    const auto bytes = bytes_of(parts[i], rank);
    return bytes.empty() || memcmp(memory.get() + offsets[i], bytes.data(), bytes.size()) == 0;
  }
  Wanted wanted(std::uint32_t rank) const { return {rank, parts, offsets, memory.get()}; }

  struct Free {
    void operator()(unsigned char* p) const { free(p); }
  };
  std::vector<ArrayPart> parts;
  std::vector<std::uint64_t> offsets;
  std::uint64_t total = 0;
  std::unique_ptr<unsigned char, Free> memory;
};

/// What a rank of a world registers.
using Model = std::function<std::vector<ArrayPart>(std::uint32_t rank, std::uint32_t world)>;

/// Writes the part of a step that one rank stores.
inline Result<ShardFile> write_model(StoreWriter& writer, FileOps& ops, std::uint64_t step,
                                     std::uint32_t rank, std::uint32_t world, const Model& model) {
  std::vector<ArrayPart> stored;
  HeldNames held;
  for (ArrayPart part : model(rank, world)) {
    held.add(part);
    if (wire::stored_part(part.array, part.name.data(), part.name.size(), rank, world,
                          &part.array.first, &part.array.count)) {
      stored.push_back(std::move(part));
    }
  }
  Placed placed(std::move(stored));
  placed.fill(rank);
  Snapshot snapshot{step, rank, world, placed.parts, placed.offsets, placed.memory.get(), held};
  if (auto status = writer.begin_step(step); !status) return status.error();
  std::atomic<bool> cancelled{false};
  return write_shard(ops, writer.shard_path(step, rank, world), snapshot, cancelled);
}

inline Status save_model(StoreWriter& writer, FileOps& ops, std::uint64_t step, std::uint32_t world,
                         const Model& model) {
  std::vector<ShardFile> shards;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    auto shard = write_model(writer, ops, step, rank, world, model);
    if (!shard) return shard.error();
    shards.push_back(*shard);
  }
  auto done = writer.commit(step, shards);
  return done ? Status() : Status(done.error());
}

/// Restores what rank of world registers and compares; "" or what is wrong.
inline std::string restore_model(const StepReader& reader, std::uint32_t rank, std::uint32_t world,
                                 const Model& model, std::vector<std::size_t>* kept = nullptr) {
  Placed placed(model(rank, world));
  auto read = reader.read(placed.wanted(rank));
  if (!read) return read.error().text;
  for (std::size_t i = 0; i < placed.parts.size(); ++i) {
    const bool keeps = std::count(read->begin(), read->end(), i) > 0;
    if (!keeps && !placed.holds(i, rank)) return placed.parts[i].name + " has other bytes";
  }
  if (kept) *kept = *read;
  return "";
}

}  // namespace bellows::checkpoint_test
