// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bellows {

/// What one job adds to a value curve: with `gpus` of its own, `value` more.
struct CurveStep {
  std::uint32_t gpus = 0;
  std::int32_t value = 0;
};

/// Which code computes a curve; all give the same bits.
enum class Kernel { scalar, avx2 };

/// The fastest that this processor has.
Kernel fastest_kernel();

/// Curves lie in rows of this many entries or a multiple of it.
constexpr std::size_t kCurveBlock = 32;

/// One step of a max-plus convolution: after[c] = max over steps of before[c - gpus] + value, for c
/// from 0 to n - 1. n: a multiple of kCurveBlock. There must be entries before `before` for the
/// largest of the steps, and at least one step. No sum may leave 32 bits. The rows must not
/// overlap.
void convolve(Kernel kernel, const std::int32_t* before, const std::vector<CurveStep>& steps,
              std::int32_t* after, std::size_t n);

}  // namespace bellows
