// SPDX-License-Identifier: Apache-2.0
#include "paramserver/rule/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace bellows::ps {

double rate_of(const RateSchedule& schedule, std::uint64_t update) {
  if (update < schedule.warm_up)
    return schedule.rate * static_cast<double>(update) / static_cast<double>(schedule.warm_up);
  const std::uint64_t since = update > schedule.warm_up ? update - schedule.warm_up - 1 : 0;
  const std::uint64_t period = std::max<std::uint64_t>(schedule.period, 1);
  switch (schedule.shape) {
    case RateShape::step:
      return schedule.rate * std::pow(schedule.factor, static_cast<double>(since / period));
    case RateShape::cosine: {
      if (since >= period) return schedule.lowest;
      const double part = static_cast<double>(since) / static_cast<double>(period);
      return schedule.lowest +
             (schedule.rate - schedule.lowest) * (1 + std::cos(std::numbers::pi * part)) / 2;
    }
    case RateShape::constant:
      break;
  }
  return schedule.rate;
}

}  // namespace bellows::ps
