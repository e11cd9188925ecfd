// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "checkpoint/wire/block_hash.h"

/// What libbellows and the agent say to each other over a unix SOCK_SEQPACKET socket, and the
/// shared memory that goes with it. Both sides run on one machine, in versions that may differ, so
/// every message names the version. Included by the library too: nothing here may need libstdc++ at
/// run time.
///
/// rank                          agent
/// hello, what it is of   ->    welcome + control page | failed
/// layout, array, array..  ->    (no answer)
/// save_begin step         ->    buffer [+ memfd when it is a new one] | failed
///   copies its arrays into the buffer
/// save_ready step         ->    saved, when the step is committed | failed
///   may begin the next save meanwhile: there are two buffers, and while both are in use the answer
///   to save_begin waits. saved and failed come when they come, each with its step.
/// restore                 ->    source + descriptor, for each; then
///                               restored + memfd | restored, value 0: no checkpoint | failed
/// taken, when there were sources
/// reserve                 ->    (no answer; the first save's buffer is made meanwhile)
/// bye, value = enum Bye   ->    goodbye | exits: (no answer)
namespace bellows::wire {

inline constexpr std::uint32_t kVersion = 4;
/// Snapshot buffers of one rank: that many saves may be in flight.
inline constexpr std::uint32_t kBuffers = 2;
inline constexpr std::uint32_t kMostDims = 8;
inline constexpr std::uint32_t kMostName = 255;
inline constexpr std::uint32_t kMostText = 4096;
inline constexpr std::uint32_t kMostArrays = 1u << 20;
inline constexpr std::uint32_t kMostWorld = 1u << 20;
inline constexpr std::uint64_t kMostValue = 4096;
/// From here on an array begins at a multiple of 4096, in buffers and in files.
inline constexpr std::uint64_t kLargeBytes = 65536;
/// A replicated array of this many bytes is stored in pieces, one by each rank.
inline constexpr std::uint64_t kSpreadBytes = 1u << 20;
/// Descriptors that come with one restore.
inline constexpr std::uint32_t kMostSources = 64;
/// Blocks of files are not larger.
inline constexpr std::uint64_t kMostBlock = 16 << 20;
/// No gate, no stop, no step yet. Steps are smaller.
inline constexpr std::uint64_t kNoStep = UINT64_MAX;

enum class Op : std::uint32_t {
  hello = 1,
  welcome = 2,  ///< value: bytes the agent may use for this rank's buffers
  layout = 3,   ///< value: how many array messages follow; replaces the arrays known so far
  array = 4,
  save_begin = 5,
  buffer = 6,      ///< value: bytes; code: which of the kBuffers
  save_ready = 7,  ///< value: enum Ready
  saved = 8,
  restore = 9,  ///< value: enum Restore
  /// value 1: step is set and a memfd comes along: all arrays the rank named, then at flags_offset
  /// one byte for each: 1, or 0 when the rank keeps what it has; value 0: there is no checkpoint.
  /// code: how many Blocks follow at blocks_offset, which the rank reads from the sources itself:
  /// the memfd has holes there
  restored = 10,
  bye = 11,  ///< value: enum Bye
  goodbye = 12,
  failed = 13,  ///< code: enum bellows_result; value: enum Failure; text follows
  reserve = 14,
  source = 15,  ///< value: enum Source; with a descriptor. They count from 0 for each restore
  taken = 16    ///< value: enum Taken
};

enum Restore : std::uint64_t {
  from_sources = 0,  ///< the rank can read from sources
  whole = 1
};

enum Source : std::uint64_t {
  memory = 0,       ///< to be mapped
  file = 1,         ///< to be read
  direct_file = 2,  ///< likewise; it takes only what O_DIRECT takes
};

enum Taken : std::uint64_t {
  wrong_block = 0,  ///< one that can't be read, or hasn't its digest; the agent answers as to whole
  all_blocks = 1
};

/// What failed: what was asked for last, or one of the saves in flight.
enum Failure : std::uint64_t {
  request = 0,
  try_again = 1,    ///< hello: a new agent may be tried
  save_of_step = 2  ///< the save of the message's step
};

enum Bye : std::uint64_t {
  stops = 0,     ///< training is to continue later
  finishes = 1,  ///< training is complete
  exits = 2      ///< the process ends by itself, with status 0, without leaving first
};

enum Ready : std::uint64_t {
  waits = 0,
  goes_on = 1,
  could_not_copy = 2  ///< the step fails
};

/// Begins every message; `length` bytes follow it.
struct Head {
  std::uint32_t version = kVersion;
  Op op = Op::failed;
  std::uint64_t step = 0;
  std::uint64_t value = 0;
  std::int32_t code = 0;
  std::uint32_t length = 0;
};

/// The body of hello. What follows is not empty, nor ended by a zero: the checkpoint directory,
/// which begins with /; in a job instead the attempt that the rank was started for.
struct Hello {
  std::int32_t rank = 0;
  std::int32_t world = 0;
};

/// The numbers of enum bellows_layout.
inline constexpr std::uint32_t kReplicated = 0;
inline constexpr std::uint32_t kSharded = 1;
inline constexpr std::uint32_t kPerRank = 2;
inline constexpr std::uint32_t kValue = 3;

/// The body of array; the name follows. `first` and `count` are along `axis`: what this rank holds
/// of a sharded array. All others have axis 0, first 0 and count shape[0], or 1 for a scalar.
struct Array {
  std::uint32_t dtype = 0;
  std::uint32_t ndims = 0;
  std::uint32_t layout = 0;
  std::uint32_t axis = 0;
  std::uint64_t shape[kMostDims] = {};
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

inline constexpr std::size_t kMostMessage = sizeof(Head) + sizeof(Array) + kMostText;

/// Bytes of one element, or 0 for a type that does not exist. The numbers are enum bellows_dtype.
constexpr std::uint64_t element_bytes(std::uint32_t dtype) {
  constexpr std::uint64_t kBytes[] = {0, 2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1, 8, 16, 1};
  return dtype < sizeof kBytes / sizeof kBytes[0] ? kBytes[dtype] : 0;
}

/// The extent of the whole array along its axis.
constexpr std::uint64_t axis_extent(const Array& a) { return a.ndims > 0 ? a.shape[a.axis] : 1; }

/// Bytes of `count` indices of the axis with all the other axes whole; false when they do not fit
/// 2^62.
constexpr bool part_bytes(const Array& a, std::uint64_t count, std::uint64_t* bytes) {
  std::uint64_t product = element_bytes(a.dtype);
  for (std::uint32_t i = 0; i < a.ndims; ++i) {
    if (i != a.axis && __builtin_mul_overflow(product, a.shape[i], &product)) return false;
  }
  return !__builtin_mul_overflow(product, count, bytes) && *bytes < (std::uint64_t{1} << 62);
}

/// Bytes this rank holds; false when they do not fit 2^62.
constexpr bool held_bytes(const Array& a, std::uint64_t* bytes) {
  return part_bytes(a, a.count, bytes);
}

/// FNV-1a, its upper half folded into the lower one.
constexpr std::uint64_t hash_of(const char* name, std::size_t length) {
  std::uint64_t hash = 14695981039346656037ull;
  for (std::size_t i = 0; i < length; ++i) {
    hash = (hash ^ static_cast<unsigned char>(name[i])) * 1099511628211ull;
  }
  return hash ^ (hash >> 32);
}

/// shape[0] * rank / world, whose product might not fit.
constexpr std::uint64_t share_begin(std::uint64_t extent, std::uint32_t rank, std::uint32_t world) {
  return extent / world * rank + extent % world * rank / world;
}

/// What of an array this rank's shard stores, along the axis; false: nothing. A large replicated
/// array is stored in pieces, a small one by the rank its name chooses, so that all ranks write,
/// whatever the order they registered in. Rank 0 stores sharded arrays even when it holds nothing
/// of them, so that an array nobody holds is noticed. Other layouts: what the rank holds. In the
/// rank's own memory the part is contiguous and begins after part_bytes(first) when replicated,
/// else at 0.
constexpr bool stored_part(const Array& a, const char* name, std::size_t name_length,
                           std::uint32_t rank, std::uint32_t world, std::uint64_t* first,
                           std::uint64_t* count) {
  *first = a.first;
  *count = a.count;
  if (a.layout == kSharded) return a.count > 0 || rank == 0;
  if (a.layout == kPerRank) return true;
  if (a.layout == kValue) return rank == 0;
  std::uint64_t bytes = 0;
  if (a.ndims == 0 || a.shape[0] < world || !held_bytes(a, &bytes) || bytes < kSpreadBytes) {
    return hash_of(name, name_length) % world == rank;
  }
  *first = share_begin(a.shape[0], rank, world);
  *count = share_begin(a.shape[0], rank + 1, world) - *first;
  return true;
}

/// Places arrays one after the other, each at a multiple of 64 bytes, large ones at one of 4096: as
/// in the shard file, so that a disk can read and write them in place.
class Placer {
 public:
  /// The offset for an array of `bytes`; false when the total would not fit 2^62.
  constexpr bool place(std::uint64_t bytes, std::uint64_t* offset) {
    const std::uint64_t mask = bytes >= kLargeBytes ? 4095 : 63;
    *offset = (end_ + mask) & ~mask;
    std::uint64_t end = 0;
    if (__builtin_add_overflow(*offset, bytes, &end) || end >= (std::uint64_t{1} << 62))
      return false;
    end_ = end;
    return true;
  }
  constexpr std::uint64_t total() const { return end_; }

 private:
  std::uint64_t end_ = 0;
};

/// Where the flags of a restore begin, after arrays of `total` bytes.
constexpr std::uint64_t flags_offset(std::uint64_t total) {
  return (total + 63) & ~std::uint64_t{63};
}

/// Where the blocks of a restore begin.
constexpr std::uint64_t blocks_offset(std::uint64_t total, std::uint64_t arrays) {
  return flags_offset(flags_offset(total) + arrays);
}

/// Bytes that lie in one array, and the digest they must have once they are there.
struct Block {
  std::uint32_t source = 0;
  std::uint32_t unused = 0;
  std::uint64_t from = 0;  ///< in the source
  std::uint64_t to = 0;    ///< where the memfd has its hole; ascending
  std::uint64_t bytes = 0;
  Hash128 digest;
};

/// One page for each rank, written by both sides.
/// The rank stores `step`, then loads `gate`; the agent stores `gate`, then loads `step`; all
/// sequentially consistent. So either the agent sees the step, or the rank sees the gate.
struct Control {
  std::atomic<std::uint64_t> step;
  std::atomic<std::uint64_t> gate;
  std::atomic<std::uint64_t> stop;
  std::atomic<std::uint32_t> wake;  ///< futex word: the agent adds 1 after it changed gate or stop
  std::atomic<std::uint32_t> announced;  ///< 1: Slurm has told the agent too that the end is near
  // What the program says of its training; 0: nothing, as with a library that lacks them.
  std::atomic<std::uint64_t> batch;        ///< samples in a step over all ranks
  std::atomic<std::uint64_t> noise_scale;  ///< of the gradient, in samples
};

/// Larger numbers in `batch` and `noise_scale` cannot be meant.
inline constexpr std::uint64_t kMostSamples = std::uint64_t{1} << 40;

inline constexpr std::size_t kControlBytes = 4096;
static_assert(sizeof(Control) <= kControlBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace bellows::wire
