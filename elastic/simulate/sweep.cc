// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/sweep.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace bellows {
namespace {

struct Part {
  double RunSetting::*value;
  const char* title;
  const char* unit;
};

constexpr Part kParts[] = {{&RunSetting::load, "load", ""},
                           {&RunSetting::restart_s, "restart", "s"},
                           {&RunSetting::round_s, "round", "s"}};

std::set<double> values_of(const std::vector<Report>& reports, const Part& part) {
  std::set<double> values;
  for (const Report& report : reports) values.insert(report.setting.*part.value);
  return values;
}

std::string with_unit(const Part& part, const std::string& text) {
  return *part.unit == '\0' ? text : text + ' ' + part.unit;
}

// "pollux", and what sets its line apart from other lines of Pollux: "pollux, round 60 s".
std::string line_name(const Report& report, const std::vector<Part>& others) {
  std::string name = report.scheduler;
  for (const Part& part : others)
    name += fmt::format(", {} {}", part.title,
                        with_unit(part, fmt::format("{:g}", report.setting.*part.value)));
  return name;
}

struct Mean {
  double sum = 0;
  int count = 0;
};

Chart chart_of(const std::vector<Report>& reports, const Part& part,
               const std::vector<Part>& others) {
  std::vector<std::string> names;
  std::map<std::string, std::map<double, Mean>> lines;
  for (const Report& report : reports) {
    const std::string name = line_name(report, others);
    if (!lines.contains(name)) names.push_back(name);
    Mean& mean = lines[name][report.setting.*part.value];
    mean.sum += report.mean_completion_s;
    ++mean.count;
  }
  const std::set<double> values = values_of(reports, part);
  // Costs of a restart differ by factors rather than by differences.
  const bool by_factors = *values.begin() > 0 && *values.rbegin() >= 10 * *values.begin();
  Chart chart{fmt::format("Mean completion by {}", part.title),
              *part.unit == '\0' ? part.title : fmt::format("{} ({})", part.title, part.unit),
              "mean completion (h)",
              by_factors,
              {}};
  for (const std::string& name : names) {
    ChartLine line{name, {}};
    for (const auto& [at, mean] : lines[name])
      line.points.emplace_back(at, mean.sum / mean.count / 3600);
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

}  // namespace

std::vector<RunSetting> Sweep::settings() const {
  std::vector<RunSetting> settings;
  for (const double load : loads)
    for (const double restart_s : restarts_s)
      for (const double round_s : rounds_s) settings.push_back({load, restart_s, round_s});
  return settings;
}

std::vector<Chart> sweep_charts(const std::vector<Report>& reports) {
  std::vector<Part> varied;
  for (const Part& part : kParts)
    if (values_of(reports, part).size() > 1) varied.push_back(part);
  std::vector<Chart> charts;
  for (std::size_t i = 0; i < varied.size(); ++i) {
    std::vector<Part> others = varied;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    charts.push_back(chart_of(reports, varied[i], others));
  }
  return charts;
}

}  // namespace bellows
