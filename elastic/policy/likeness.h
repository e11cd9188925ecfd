// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace bellows {

/// How many times one thing is another, from the ratios wherever both are known: their geometric
/// mean, or 1 where there are none. Nothing: a ratio is another than the mean by more than a factor
/// of 1.5, so the two are not alike.
inline std::optional<double> common_ratio(const std::vector<double>& ratios) {
  const double unlike = std::log(1.5);
  double mean = 0;
  for (const double ratio : ratios) mean += std::log(ratio) / static_cast<double>(ratios.size());
  const bool alike = std::all_of(ratios.begin(), ratios.end(), [&](double ratio) {
    return std::abs(std::log(ratio) - mean) <= unlike;
  });
  return alike ? std::optional(std::exp(mean)) : std::nullopt;
}

}  // namespace bellows
