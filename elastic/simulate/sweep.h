// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "elastic/simulate/picture.h"
#include "elastic/simulate/report.h"

namespace bellows {

/// The settings of a sweep: each value with each of the others.
struct Sweep {
  std::vector<double> loads = {1};
  std::vector<double> restarts_s = {30};
  std::vector<double> rounds_s = {60};

  std::vector<RunSetting> settings() const;
};

/// A chart for each part of the setting that differs between the reports: the mean completion, over
/// all workloads, with a line for each scheduler and for each combination of the other parts.
std::vector<Chart> sweep_charts(const std::vector<Report>& reports);

}  // namespace bellows
