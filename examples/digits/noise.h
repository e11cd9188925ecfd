// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

namespace digits {

/// The noise scale of the gradient: the batch at which noise and gradient are equally large
/// (McCandlish et al., arXiv:1812.06162, appendix A). The squared norm of the mean gradient of n
/// samples is on average |G|^2 + V / n, where G is the true gradient and V the variance of a
/// sample's, so two different n give both.
class NoiseScale {
 public:
  /// One step: `small` is the mean squared norm over means of `few` samples, `large` that of the
  /// mean of all `many`.
  void add(double small, std::size_t few, double large, std::size_t many);

  /// In samples; nothing while too few steps were seen to tell, or no gradient is seen in the
  /// noise.
  std::optional<double> samples() const;

 private:
  double square_ = 0;
  double variance_ = 0;
  int steps_ = 0;
};

}  // namespace digits
