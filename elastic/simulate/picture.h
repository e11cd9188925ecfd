// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "elastic/simulate/cluster.h"

namespace bellows {

/// The GPUs of each job over time as stacked areas, a colour for each application, the job that was
/// submitted first at the bottom: an HTML page that needs nothing else. It shows the run at 1200
/// moments, evenly spaced, so that what lasted less than the time between two of them may be
/// missing. Names may be anything: they can't become a part of the page's language.
std::string gpu_picture(const Outcome& outcome, const ClusterShape& shape, std::string_view title);

/// A line of a chart: x and y, in the order in which they are to be joined.
struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

struct Chart {
  std::string title;
  std::string x_title;  ///< with its unit
  std::string y_title;  ///< likewise
  bool logarithmic_x = false;
  std::vector<ChartLine> lines;
};

/// Line charts as such a page, one below the other. y begins at 0, or at the least value below it.
/// Points with a NaN or an infinite value are left out, and with a logarithmic x those that are not
/// above 0.
std::string curves_picture(std::string_view title, const std::vector<Chart>& charts);

}  // namespace bellows
