// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace bellows::ps {

/// How a learning rate changes after its warm-up; n counts the updates after that.
enum class RateShape {
  constant,  ///< torch's ConstantLR with factor 1
  step,      ///< rate factor^floor(n / period), as torch's StepLR
  cosine,    ///< half a wave from rate to lowest in `period` updates, as torch's CosineAnnealingLR;
             ///< lowest from then on
};

struct RateSchedule {
  RateShape shape = RateShape::constant;
  double rate = 0;            ///< the highest
  std::uint64_t warm_up = 0;  ///< updates that the rate takes to rise to `rate` in a line
  std::uint64_t period = 1;   ///< in updates, at least 1
  double factor = 1;          ///< of a step
  double lowest = 0;          ///< of a cosine
};

/// The rate of one update, of which the first is number 1. During the warm-up update k has
/// rate k / warm_up.
double rate_of(const RateSchedule& schedule, std::uint64_t update);

}  // namespace bellows::ps
