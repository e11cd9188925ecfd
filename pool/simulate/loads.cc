// SPDX-License-Identifier: Apache-2.0
#include "pool/simulate/loads.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace bellows::pool {
namespace {

constexpr int kSeconds = 3600;

/// Of the peak.
double level(const std::string& name, int second) {
  constexpr double kSteps[] = {0.2, 0.8, 0.3, 1.0, 0.1, 0.6};
  const double part = static_cast<double>(second) / kSeconds;
  if (name == "steps") return kSteps[second / 600];
  if (name == "cyclic") return 0.55 + 0.4 * std::sin(2 * std::numbers::pi * second / 600);
  if (name == "day") return 0.5 - 0.45 * std::cos(2 * std::numbers::pi * part);
  if (second < 1200) return 0.1;
  if (second < 1230) return 0.1 + 0.9 * (second - 1200) / 30;
  return 0.1 + 0.9 * std::exp(-(second - 1230) / 400.0);
}

}  // namespace

const std::vector<std::string>& load_names() {
  static const std::vector<std::string> names{"steps", "cyclic", "day", "crowd"};
  return names;
}

std::vector<double> make_load(const std::string& name, double peak, std::uint32_t seed) {
  std::vector<double> load;
  const auto& names = load_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) return load;
  std::mt19937 random(seed);
  for (int second = 0; second < kSeconds; ++second) {
    // Not by a distribution of the standard library: those differ between libraries.
    const double dice = static_cast<double>(random()) / 4294967296.0;
    load.push_back(peak * std::min(1.0, level(name, second) * (0.98 + 0.04 * dice)));
  }
  return load;
}

}  // namespace bellows::pool
