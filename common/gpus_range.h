// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows {

/// The sizes, in GPUs, among which an elastic job may move: a non-empty ascending set.
///
/// A job that has no GPUs has none(), whose only size is 0.
///
/// Spellings: `N`, `MIN-MAX`, `MIN-MAX:STEP` (MIN, MIN+STEP, ... up to MAX) and `A,B,C`.
/// A value: compares and copies.
class GpusRange {
 public:
  static constexpr std::uint32_t kMost = 4096;

  /// invalid: says which part of the text is wrong and gives the accepted forms.
  static Result<GpusRange> parse(std::string_view text);
  /// Of a job without GPUs; parse() never gives it.
  static GpusRange none();
  bool is_none() const { return max() == 0; }
  /// Only sizes from `first` to `last`, both within 1..kMost and first <= last.
  static GpusRange between(std::uint32_t first, std::uint32_t last, std::uint32_t step = 1);

  /// Just these: at least one, ascending, within 1..kMost.
  static GpusRange of(std::vector<std::uint32_t> sizes);

  // Copied, never moved from: every range has a size.
  GpusRange(const GpusRange&) = default;
  GpusRange& operator=(const GpusRange&) = default;

  std::uint32_t min() const { return sizes().front(); }
  std::uint32_t max() const { return sizes().back(); }
  bool contains(std::uint32_t size) const;
  const std::vector<std::uint32_t>& sizes() const { return *sizes_; }
  /// The largest size that is at most `size`, or min() when all are larger.
  std::uint32_t clamp(std::uint32_t size) const;
  /// The shortest spelling; parse(to_string()) gives an equal range.
  std::string to_string() const;

  bool operator==(const GpusRange& other) const { return sizes() == other.sizes(); }

 private:
  explicit GpusRange(std::vector<std::uint32_t> sizes)
      : sizes_(std::make_shared<const std::vector<std::uint32_t>>(std::move(sizes))) {}
  /// Shared by all copies, for a policy has thousands of them.
  std::shared_ptr<const std::vector<std::uint32_t>> sizes_;
};

}  // namespace bellows
