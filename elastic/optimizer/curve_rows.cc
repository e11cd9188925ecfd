// SPDX-License-Identifier: Apache-2.0
#include "elastic/optimizer/curve_rows.h"

#include <algorithm>

namespace bellows {
namespace {

/// Stays below every value that can be had, whatever one step adds, and above what 32 bits hold.
constexpr std::int32_t kNever = -(1 << 30);

std::size_t round_up(std::size_t n) { return (n + kCurveBlock - 1) / kCurveBlock * kCurveBlock; }

}  // namespace

CurveRows::CurveRows(std::uint32_t most, std::size_t choices, std::uint32_t largest_step,
                     Kernel kernel)
    : kernel_(kernel),
      most_(most),
      margin_(largest_step),
      length_(round_up(std::size_t{most} + 1)),
      stride_(margin_ + length_),
      values_((choices + 1) * stride_, kNever) {
  std::fill_n(row(0), length_, 0);
}

void CurveRows::add(const std::vector<CurveStep>& steps) {
  std::int32_t* after = row(rows_);
  convolve(kernel_, row(rows_ - 1), steps, after, length_);
  // What could not be had before is not to come nearer, step by step.
  for (std::size_t c = 0; c < length_ && after[c] < -kLargest; ++c) after[c] = kNever;
  ++rows_;
}

}  // namespace bellows
