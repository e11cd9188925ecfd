// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/noise.h"

#include <algorithm>

namespace digits {
namespace {

// A single step's estimates are noisier than what they estimate.
constexpr double kSmoothing = 0.98;
constexpr int kFewestSteps = 20;

}  // namespace

void NoiseScale::add(double small, std::size_t few, double large, std::size_t many) {
  if (few == 0 || many <= few) return;
  const double parts = static_cast<double>(many) / static_cast<double>(few);
  const double square = (parts * large - small) / (parts - 1);
  const double variance = (small - large) * static_cast<double>(many) / (parts - 1);
  square_ = kSmoothing * square_ + (1 - kSmoothing) * square;
  variance_ = kSmoothing * variance_ + (1 - kSmoothing) * variance;
  ++steps_;
}

std::optional<double> NoiseScale::samples() const {
  if (steps_ < kFewestSteps || square_ <= 0) return std::nullopt;
  return std::max(variance_, 0.0) / square_;
}

}  // namespace digits
