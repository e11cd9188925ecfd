// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/read/copy_plan.h"

#include <algorithm>
#include <cstring>

namespace bellows {
namespace {

/// Indices of an axis, as two parts of an array have them in common.
struct Overlap {
  std::uint64_t count = 1;
  std::uint64_t in_stored = 0;  ///< where it begins in the stored part
  std::uint64_t in_wanted = 0;
  std::uint64_t stored = 1;  ///< how much of the axis the stored part holds
  std::uint64_t wanted = 1;
};

std::uint64_t first_of(const wire::Array& a, std::uint32_t axis) {
  return axis == a.axis ? a.first : 0;
}

std::uint64_t count_of(const wire::Array& a, std::uint32_t axis) {
  return axis == a.axis ? a.count : a.shape[axis];
}

Overlap overlap(const wire::Array& s, const wire::Array& w, std::uint32_t axis) {
  Overlap out;
  out.stored = count_of(s, axis);
  out.wanted = count_of(w, axis);
  const std::uint64_t s_first = first_of(s, axis), w_first = first_of(w, axis);
  const std::uint64_t begin = std::max(s_first, w_first);
  const std::uint64_t end = std::min(s_first + out.stored, w_first + out.wanted);
  out.count = end > begin ? end - begin : 0;
  out.in_stored = begin - s_first;
  out.in_wanted = begin - w_first;
  return out;
}

std::uint64_t extents(const wire::Array& a, std::uint32_t from, std::uint32_t to) {
  std::uint64_t product = 1;
  for (std::uint32_t i = from; i < to; ++i) product *= a.shape[i];
  return product;
}

// Runs that follow each other on both sides are one.
void join(Copy* copy, Copy::Level* level) {
  if (level->count == 1 || (level->from == copy->bytes && level->to == copy->bytes)) {
    copy->bytes *= level->count;
    *level = {};
  }
}

struct Indices {
  std::uint64_t begin;
  std::uint64_t end;
};

// Which of the level's items, each `extent` bytes long and the first at `base`, have bytes in
// [begin, end).
Indices items_within(const Copy::Level& level, std::uint64_t base, std::uint64_t extent,
                     std::uint64_t begin, std::uint64_t end) {
  if (base >= end) return {0, 0};
  if (level.from == 0) return {0, level.count};
  const std::uint64_t first = base + extent > begin ? 0 : (begin - base - extent) / level.from + 1;
  return {first, std::min(level.count, (end - base - 1) / level.from + 1)};
}

// Calls found(where in the file, bytes, where in memory from copy.to) for each run; true ends it.
template <typename Found>
bool for_each_run(const Copy& c, std::uint64_t begin, std::uint64_t end, const Found& found) {
  const std::uint64_t extent = (c.inner.count - 1) * c.inner.from + c.bytes;
  const Indices outer = items_within(c.outer, c.offset, extent, begin, end);
  for (std::uint64_t i = outer.begin; i < outer.end; ++i) {
    const std::uint64_t base = c.offset + i * c.outer.from;
    const Indices inner = items_within(c.inner, base, c.bytes, begin, end);
    for (std::uint64_t j = inner.begin; j < inner.end; ++j) {
      const std::uint64_t at = base + j * c.inner.from;
      const std::uint64_t from = std::max(at, begin), to = std::min(at + c.bytes, end);
      if (from >= to) continue;
      if (found(from, to - from, i * c.outer.to + j * c.inner.to + (from - at))) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<Copy> plan_copy(const StoredPart& stored, const wire::Array& wanted,
                              unsigned char* to) {
  const wire::Array& s = stored.part.array;
  const std::uint32_t low = std::min(s.axis, wanted.axis), high = std::max(s.axis, wanted.axis);
  const Overlap l = low == high ? Overlap{} : overlap(s, wanted, low);
  const Overlap h = overlap(s, wanted, high);
  const std::uint64_t outer = extents(s, 0, low);
  const std::uint64_t middle = low == high ? 1 : extents(s, low + 1, high);
  const std::uint64_t inner = wire::element_bytes(s.dtype) * extents(s, high + 1, s.ndims);
  if (outer * l.count * middle * h.count * inner == 0) return {};
  Copy out;
  out.bytes = h.count * inner;
  out.inner = {l.count * middle, h.stored * inner, h.wanted * inner};
  out.outer = {outer, l.stored * middle * out.inner.from, l.wanted * middle * out.inner.to};
  out.offset = stored.offset + l.in_stored * middle * out.inner.from + h.in_stored * inner;
  out.to = to + l.in_wanted * middle * out.inner.to + h.in_wanted * inner;
  join(&out, &out.inner);
  if (out.inner.count == 1) join(&out, &out.outer);
  return out;
}

void copy_out(const Copy& copy, std::uint64_t begin, std::uint64_t end, const unsigned char* data) {
  for_each_run(copy, begin, end, [&](std::uint64_t at, std::uint64_t bytes, std::uint64_t to) {
    std::memcpy(copy.to + to, data + (at - begin), bytes);
    return false;
  });
}

bool touches(const Copy& copy, std::uint64_t begin, std::uint64_t end) {
  return for_each_run(copy, begin, end,
                      [](std::uint64_t, std::uint64_t, std::uint64_t) { return true; });
}

}  // namespace bellows
