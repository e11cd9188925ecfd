// SPDX-License-Identifier: Apache-2.0
#include "elastic/policy/seen_speeds.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "elastic/policy/smoothing.h"

namespace bellows {
namespace {

using Seen = std::pair<const std::uint32_t, double>;

/// To which the GPUs are to be raised to go from one speed to the other: 1 scales perfectly.
double exponent(const Seen& from, const Seen& to) {
  return std::log(to.second / from.second) / std::log(static_cast<double>(to.first) / from.first);
}

}  // namespace

void SeenSpeeds::add(std::uint32_t gpus, double per_s) {
  if (gpus == 0 || !std::isfinite(per_s) || per_s <= 0) return;
  const auto [at, fresh] = seen_.emplace(gpus, per_s);
  if (!fresh) at->second = smoothed(at->second, per_s);
}

double SeenSpeeds::at(std::uint32_t gpus) const {
  if (seen_.empty()) return gpus;
  const auto above = seen_.lower_bound(gpus);
  if (above != seen_.end() && above->first == gpus) return above->second;
  if (above == seen_.begin()) return above->second * gpus / above->first;
  const auto below = std::prev(above);
  const double times = static_cast<double>(gpus) / below->first;
  if (above != seen_.end()) return below->second * std::pow(times, exponent(*below, *above));
  if (below == seen_.begin()) return below->second * times;
  return below->second * std::pow(times, std::clamp(exponent(*std::prev(below), *below), 0.0, 1.0));
}

}  // namespace bellows
