// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <type_traits>

namespace bellows {
namespace {

constexpr std::uint64_t kBlock = 8 << 20;

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

using Pair = std::pair<const StoredArray*, const StoredArray*>;

std::map<std::string, Pair> pair_up(const StepContents& a, const StepContents& b) {
  std::map<std::string, Pair> pairs;
  for (const StoredArray& array : a.arrays()) pairs[array.title()].first = &array;
  for (const StoredArray& array : b.arrays()) pairs[array.title()].second = &array;
  return pairs;
}

/// Two blocks of memory for all arrays.
class Comparer {
 public:
  Comparer(const StepContents& a, const StepContents& b, ProgressBar& progress)
      : a_(a), b_(b), progress_(progress) {}

  Status compare(const Pair& pair, ArrayDifference& out) {
    const auto& [a, b] = pair;
    const std::uint64_t size = wire::element_bytes(a->type.dtype);
    const std::uint64_t total = a->elements();
    for (std::uint64_t first = 0; first < total;) {
      const std::uint64_t count = std::min(kBlock / size, total - first);
      auto status = a_.read(*a, first, count, block_a_.get());
      if (status) status = b_.read(*b, first, count, block_b_.get());
      if (status) status = progress_.add(2 * count * size);
      if (!status) return status;
      out.elements.add(out.dtype, block_a_.get(), block_b_.get(), count);
      first += count;
    }
    return {};
  }

 private:
  const StepContents& a_;
  const StepContents& b_;
  ProgressBar& progress_;
  std::unique_ptr<unsigned char[]> block_a_ = std::make_unique<unsigned char[]>(kBlock);
  std::unique_ptr<unsigned char[]> block_b_ = std::make_unique<unsigned char[]>(kBlock);
};

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
  std::vector<ArrayDifference> out;
  Comparer comparer(a, b, progress);
  progress.begin(fmt::format("comparing steps {} and {}", a.manifest().step, b.manifest().step),
                 a.bytes() + b.bytes());
  for (const auto& [title, pair] : pair_up(a, b)) {
    ArrayDifference array;
    array.title = title;
    if (pair.first) array.type_a = pair.first->type_text();
    if (pair.second) array.type_b = pair.second->type_text();
    if (array.same_type()) {
      array.dtype = static_cast<Dtype>(pair.first->type.dtype);
      if (auto status = comparer.compare(pair, array); !status) return status.error();
    }
    out.push_back(std::move(array));
  }
  return out;
}

}  // namespace bellows
