// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

namespace bellows {

/// How many steps a second a job was seen to take at each size. For programs that do not say how
/// many samples a step has, which StepTime would need. A value type.
class SeenSpeeds {
 public:
  /// Later ones count more. What is not a positive number is left out.
  void add(std::uint32_t gpus, double per_s);

  /// Between two sizes that were seen, on the line between them in logarithms. Above them that line
  /// goes on, neither falling nor faster than the GPUs; a job seen at one size is taken to scale
  /// perfectly. Without any, the number of GPUs.
  double at(std::uint32_t gpus) const;

 private:
  std::map<std::uint32_t, double> seen_;  ///< GPUs -> per second
};

}  // namespace bellows
