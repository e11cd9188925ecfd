// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

/// What libbellows and the agent say to each other over a unix SOCK_SEQPACKET socket, and the
/// shared memory that goes with it. Both sides run on one machine, in versions that may differ, so
/// every message names the version. Included by the library too: nothing here may need libstdc++ at
/// run time.
///
/// rank                          agent
/// hello, directory        ->    welcome + control page | failed
/// layout, array, array..  ->    (no answer)
/// save_begin step         ->    buffer [+ memfd when it is a new one] | failed
///   copies its arrays into the buffer
/// save_ready step         ->    saved, when the step is committed | failed
/// restore                 ->    restored + memfd | restored, value 0: no checkpoint | failed
/// bye, value = finished   ->    goodbye
namespace bellows::wire {

inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kMostDims = 8;
inline constexpr std::uint32_t kMostName = 255;
inline constexpr std::uint32_t kMostText = 4096;
inline constexpr std::uint32_t kMostArrays = 1u << 20;
inline constexpr std::uint32_t kMostWorld = 1u << 20;
/// No gate, no stop, no step yet. Steps are smaller.
inline constexpr std::uint64_t kNoStep = UINT64_MAX;

enum class Op : std::uint32_t {
  hello = 1,
  welcome = 2,
  layout = 3,  ///< value: how many array messages follow; replaces the arrays known so far
  array = 4,
  save_begin = 5,
  buffer = 6,  ///< value: bytes
  save_ready = 7,
  saved = 8,
  restore = 9,
  restored = 10,  ///< value 1: step is set and a memfd comes along; 0: there is no checkpoint
  bye = 11,
  goodbye = 12,
  failed = 13,  ///< code: enum bellows_result; value 1: a new agent may be tried; text follows
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

/// The body of hello; the checkpoint directory follows (not ended by a zero, may be empty).
struct Hello {
  std::int32_t rank = 0;
  std::int32_t world = 0;
};

/// The body of array; the name follows.
struct Array {
  std::uint32_t dtype = 0;
  std::uint32_t ndims = 0;
  std::uint32_t layout = 0;
  std::uint32_t reserved = 0;
  std::uint64_t shape[kMostDims] = {};
  std::uint64_t first_row = 0;
  std::uint64_t rows = 0;  ///< what this rank holds; replicated: shape[0], or 1 for a scalar
};

inline constexpr std::size_t kMostMessage = sizeof(Head) + sizeof(Array) + kMostText;

/// Bytes of one element, or 0 for a type that does not exist. The numbers are enum bellows_dtype.
constexpr std::uint64_t element_bytes(std::uint32_t dtype) {
  constexpr std::uint64_t kBytes[] = {0, 2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8};
  return dtype < sizeof kBytes / sizeof kBytes[0] ? kBytes[dtype] : 0;
}

/// Bytes of one row; false when the product does not fit 2^62.
constexpr bool row_bytes(const Array& a, std::uint64_t* bytes) {
  std::uint64_t product = element_bytes(a.dtype);
  for (std::uint32_t i = 1; i < a.ndims; ++i) {
    if (__builtin_mul_overflow(product, a.shape[i], &product)) return false;
  }
  *bytes = product;
  return product < (std::uint64_t{1} << 62);
}

/// Bytes this rank holds; false when they do not fit 2^62.
constexpr bool held_bytes(const Array& a, std::uint64_t* bytes) {
  std::uint64_t row = 0;
  if (!row_bytes(a, &row)) return false;
  return !__builtin_mul_overflow(row, a.rows, bytes) && *bytes < (std::uint64_t{1} << 62);
}

/// Whether this rank's shard holds the array: each replicated one is stored by one rank, spread by
/// name so that all ranks write, whatever the order they registered in. Rank 0 stores sharded
/// arrays even when it holds no row, so that rows nobody holds are noticed.
constexpr bool stored_by(const Array& a, const char* name, std::size_t name_length,
                         std::uint32_t rank, std::uint32_t world) {
  if (a.layout != 0) return a.rows > 0 || rank == 0;
  std::uint64_t hash = 14695981039346656037ull;
  for (std::size_t i = 0; i < name_length; ++i) {
    hash = (hash ^ static_cast<unsigned char>(name[i])) * 1099511628211ull;
  }
  return (hash ^ (hash >> 32)) % world == rank;
}

/// Places arrays one after the other, each at a multiple of 64 bytes.
class Placer {
 public:
  /// The offset for an array of `bytes`; false when the total would not fit 2^62.
  constexpr bool place(std::uint64_t bytes, std::uint64_t* offset) {
    *offset = end_;
    std::uint64_t end = 0;
    if (__builtin_add_overflow(end_, bytes, &end) || end >= (std::uint64_t{1} << 62)) return false;
    end_ = (end + 63) & ~std::uint64_t{63};
    return true;
  }
  constexpr std::uint64_t total() const { return end_; }

 private:
  std::uint64_t end_ = 0;
};

/// One page for each rank, written by both sides.
/// The rank stores `step`, then loads `gate`; the agent stores `gate`, then loads `step`; all
/// sequentially consistent. So either the agent sees the step, or the rank sees the gate.
struct Control {
  std::atomic<std::uint64_t> step;
  std::atomic<std::uint64_t> gate;
  std::atomic<std::uint64_t> stop;
  std::atomic<std::uint32_t> wake;  ///< futex word: the agent adds 1 after it changed gate or stop
};

inline constexpr std::size_t kControlBytes = 4096;
static_assert(sizeof(Control) <= kControlBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace bellows::wire
