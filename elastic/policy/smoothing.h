// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bellows {

/// A mean of measurements after one more, by exponential smoothing. A program's speed drifts, so
/// that old measurements should fade, and a single one is noise: 0.3 averages over the last few.
inline double smoothed(double mean, double measured) {
  constexpr double kWeight = 0.3;
  return mean + kWeight * (measured - mean);
}

}  // namespace bellows
