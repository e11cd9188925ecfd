// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt/diff.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <type_traits>

namespace bellows {
namespace {

constexpr std::uint64_t kBlock = 32 << 20;

template <typename T>
bool finite(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isfinite(value);
  return true;
}

template <typename T>
bool finite(std::complex<T> value) {
  return finite(value.real()) && finite(value.imag());
}

/// Exact for integers: a long double has no fewer digits than 64 bits.
template <typename T>
long double distance(T a, T b) {
  return std::abs(static_cast<long double>(a) - static_cast<long double>(b));
}

template <typename T>
long double distance(std::complex<T> a, std::complex<T> b) {
  return std::abs(std::complex<long double>(a) - std::complex<long double>(b));
}

template <typename T>
long double magnitude(T value) {
  return distance(value, T());
}

struct Pair {
  const StoredArray* a = nullptr;
  const StoredArray* b = nullptr;
};

std::map<std::string, Pair> pair_up(const StepContents& a, const StepContents& b) {
  std::map<std::string, Pair> pairs;
  for (const StoredArray& array : a.arrays()) pairs[array.title()].a = &array;
  for (const StoredArray& array : b.arrays()) pairs[array.title()].b = &array;
  return pairs;
}

/// Those of one type, and where the result of each is.
struct Comparable {
  std::vector<const StoredArray*> arrays;
  std::map<const StoredArray*, std::pair<const StoredArray*, ArrayDifference*>> other;
  std::uint64_t bytes = 0;
};

Status compare(const StepContents& a, const StepContents& b, const Comparable& comparable,
               ProgressBar& progress) {
  const auto block_a = std::make_unique<unsigned char[]>(kBlock);
  const auto block_b = std::make_unique<unsigned char[]>(kBlock);
  for (const auto& slices : cut_into_batches(comparable.arrays, kBlock)) {
    std::vector<Slice> slices_b = slices;
    for (Slice& slice : slices_b) slice.array = comparable.other.at(slice.array).first;
    auto status = a.read(slices, block_a.get());
    if (status) status = b.read(slices_b, block_b.get());
    if (!status) return status;
    for (const Slice& slice : slices) {
      ArrayDifference& out = *comparable.other.at(slice.array).second;
      out.elements.add(out.dtype, block_a.get() + slice.offset, block_b.get() + slice.offset,
                       slice.count);
      if (status = progress.add(2 * slice.bytes()); !status) return status;
    }
  }
  return {};
}

}  // namespace

void ElementDifference::add(Dtype dtype, const unsigned char* a, const unsigned char* b,
                            std::uint64_t count) {
  elements += count;
  const std::uint64_t size = wire::element_bytes(static_cast<std::uint32_t>(dtype));
  if (std::memcmp(a, b, count * size) == 0) return;
  with_reader(dtype, [&](auto read) {
    for (std::uint64_t i = 0; i < count; ++i, a += size, b += size) {
      if (std::memcmp(a, b, size) == 0) continue;
      ++differing;
      const auto x = read(a), y = read(b);
      if (!finite(x) || !finite(y)) {
        ++not_finite;
        continue;
      }
      const long double apart = distance(x, y);
      const long double larger = std::max(magnitude(x), magnitude(y));
      largest_absolute = std::max(largest_absolute, apart);
      if (larger > 0) largest_relative = std::max(largest_relative, apart / larger);
    }
  });
}

Result<std::vector<ArrayDifference>> compare_steps(const StepContents& a, const StepContents& b,
                                                   ProgressBar& progress) {
  const auto pairs = pair_up(a, b);
  std::vector<ArrayDifference> out(pairs.size());
  Comparable comparable;
  std::size_t i = 0;
  for (const auto& [title, pair] : pairs) {
    ArrayDifference& array = out[i++];
    array.title = title;
    if (pair.a) array.type_a = pair.a->type_text();
    if (pair.b) array.type_b = pair.b->type_text();
    if (!array.same_type()) continue;
    array.dtype = static_cast<Dtype>(pair.a->type.dtype);
    comparable.arrays.push_back(pair.a);
    comparable.other[pair.a] = {pair.b, &array};
    comparable.bytes += 2 * pair.a->bytes();
  }
  progress.begin(fmt::format("comparing steps {} and {}", a.manifest().step, b.manifest().step),
                 comparable.bytes);
  if (auto status = compare(a, b, comparable, progress); !status) return status.error();
  return out;
}

}  // namespace bellows
