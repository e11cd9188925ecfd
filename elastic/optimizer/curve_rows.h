// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "elastic/optimizer/kernel.h"

namespace bellows {

/// The value curves of a growing set of choices (a tenant's jobs, a cluster's tenants): row k is
/// the best value of the first k choices with at most c GPUs, for c from 0 to most(). A value type.
class CurveRows {
 public:
  /// No value that is added may be larger than this, nor the sum of all, either way.
  static constexpr std::int32_t kLargest = 1 << 28;

  /// For at most `choices` choices, none of a step of more than `largest_step` GPUs.
  CurveRows(std::uint32_t most, std::size_t choices, std::uint32_t largest_step, Kernel kernel);

  /// One more choice, of exactly one of the steps. If none of them is without GPUs, there are too
  /// few GPUs at the beginning of the row: see is_feasible.
  void add(const std::vector<CurveStep>& steps);

  std::uint32_t most() const { return most_; }
  std::int32_t value(std::size_t choices, std::uint32_t gpus) const {
    return values_[choices * stride_ + margin_ + gpus];
  }
  /// Whether the first `choices` can be made with so many GPUs.
  bool is_feasible(std::size_t choices, std::uint32_t gpus) const {
    return value(choices, gpus) >= -kLargest;
  }

 private:
  std::int32_t* row(std::size_t index) { return values_.data() + index * stride_ + margin_; }

  Kernel kernel_;
  std::uint32_t most_;
  std::size_t margin_;  ///< entries before the 0 GPUs of a row, which no choice can have
  std::size_t length_;
  std::size_t stride_;
  std::size_t rows_ = 1;
  std::vector<std::int32_t> values_;
};

}  // namespace bellows
