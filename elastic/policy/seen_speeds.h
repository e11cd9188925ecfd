// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

namespace bellows {

/// How fast a job was seen to train at each size: samples or steps in a second. For jobs whose
/// reports say how long a step takes and not what it consists of, which StepTime would need. A
/// value type.
class SeenSpeeds {
 public:
  /// Later ones count more. What is not a positive number is left out.
  void add(std::uint32_t gpus, double per_s);

  /// Between two sizes that were seen, on the line between them in logarithms. Above them that line
  /// goes on, neither falling nor faster than the GPUs; a job seen at one size is taken to scale
  /// perfectly. Without any, the number of GPUs.
  double at(std::uint32_t gpus) const;
  /// A job explores by doubling: the most GPUs at which it is taken to scale on. `now`: what it
  /// holds.
  std::uint32_t most_to_try(std::uint32_t now) const;
  const std::map<std::uint32_t, double>& seen() const { return seen_; }

 private:
  std::map<std::uint32_t, double> seen_;  ///< GPUs -> per second
};

}  // namespace bellows
