// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bellows::ps {

inline constexpr std::uint64_t kMagic = 0x3152'4553'5053'4c42;  // "BLSPSER1"
inline constexpr std::uint32_t kLayout = 3;
inline constexpr std::uint32_t kMostLearners = 256;
inline constexpr std::uint32_t kMostShards = 256;
inline constexpr std::uint64_t kMostElements = std::uint64_t{1} << 40;
/// Tensors and shards begin at multiples of so many elements, so that vectors are aligned.
inline constexpr std::uint64_t kAlignElements = 64;
inline constexpr std::uint64_t kPage = 4096;
/// Memory of so many bytes is asked for in huge pages; less might take much more room in them.
inline constexpr std::uint64_t kHugeFrom = std::uint64_t{64} << 20;
/// Of each of a shard's states: the current one, the one to write to, and one for a saver to read.
inline constexpr std::uint32_t kStateCopies = 3;
/// Two cache lines: the processor fetches them in pairs.
inline constexpr std::size_t kApart = 128;

/// What is the same from the server's start to its end.
struct Geometry {
  std::uint32_t learners = 0;  ///< at most so many at the same time
  std::uint32_t shards = 0;
  std::uint32_t gradient_bytes = 4;  ///< of one element: 4, or 2 for bfloat16 and float16
  std::uint32_t states = 0;          ///< float32 arrays beside the weights: 0, 1 or 2
  std::uint64_t elements = 0;        ///< of all shards
  std::uint64_t row_words = 0;       ///< in which a gradient names rows, of all tensors

  /// One for each learner that reads, one for a saver, the current one, and one to write to.
  std::uint32_t buffers() const { return learners + 3; }
  bool is_valid() const;
};

/// Which version of a shard's weights is the current one, and the buffer that has it.
struct Current {
  std::uint64_t version = 0;  ///< of 48 bits: 2,000 years of 4,000 updates a second
  std::uint32_t buffer = 0;

  static constexpr std::uint32_t kNoBuffer = 0xffff;
  static Current of(std::uint64_t word) {
    return {word >> 16, static_cast<std::uint32_t>(word & 0xffff)};
  }
  std::uint64_t word() const { return version << 16 | buffer; }
  bool operator==(const Current&) const = default;
};

using Word = std::atomic<std::uint64_t>;
using Half = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);
static_assert(Half::is_always_lock_free && sizeof(Half) == 4);

/// The first bytes of `control`.
struct ControlHeader {
  std::uint64_t magic;
  std::uint32_t layout;
  Geometry geometry;
  Word idle_steps;  ///< by which checkpoints are named, beside the updates: see Saver
};

/// The learner of which a shard has applied the fewest gradients, by its clock. In synchronous mode
/// the one for which it waits with the others' gradients, since a version.
struct Slowest {
  std::uint64_t clock = 0;  ///< or version; of 48 bits
  std::uint32_t learner = kNobody;

  static constexpr std::uint32_t kNobody = 0xffff;
  static Slowest of(std::uint64_t word) {
    return {word >> 16, static_cast<std::uint32_t>(word & 0xffff)};
  }
  std::uint64_t word() const { return clock << 16 | learner; }
};

struct ShardWords {
  std::uint64_t begin;  ///< its first element
  std::uint64_t count;
  alignas(kApart) Word current;
  alignas(kApart) Word slowest;  ///< a Slowest
  alignas(kApart) Half asleep;   ///< 1: its thread waits to be woken
  /// How old the weights were of which gradients were computed: for people, and after a kill of the
  /// server one may count twice or not.
  alignas(kApart) Word gradients;
  Word staleness;       ///< the sum, in versions
  Word most_staleness;  ///< of one

  /// For a futex: the half of `current` with the low bits of the version, which each flip changes.
  std::uint32_t* sleepers_word() {
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    return reinterpret_cast<std::uint32_t*>(&current);
  }
  /// For a futex: the low bits of the clock, and the learner.
  std::uint32_t* slowest_word() { return reinterpret_cast<std::uint32_t*>(&slowest); }
};

/// What belongs to one version of one shard, beside its learners.
struct VersionRecord {
  Half state;  ///< which copy of the states
};

/// What one version of one shard contains of a learner. What a server wrote that ended before the
/// version became current was never so: whoever reads an entry then looks whether the version still
/// is the current one.
struct LearnerRecord {
  Half incarnation;
  Half applied;  ///< the last sequence
  Word total;    ///< gradients of all incarnations
};

/// The first bytes of a slot, followed by a pin for each shard, and for each of the two gradients
/// the version of each shard that it was computed of; then both gradients; then of each of them,
/// for each tensor whose gradients name rows, how many it names, and room for as many as there are.
/// Written by its learner only.
struct SlotHeader {
  Half published;  ///< the last sequence whose payload is complete
  Half waiting;    ///< 1: the learner sleeps until something is applied
  float scale[2];  ///< what the gradient of each payload is multiplied with
  Half attached;   ///< 1: it has mapped all
  Half left;       ///< 1: it has left, though its process may go on
};

}  // namespace bellows::ps
