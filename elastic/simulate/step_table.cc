// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/step_table.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>

namespace bellows {
namespace {

constexpr std::array<std::string_view, 3> kStepTitles = {"local_bsz", "step_time", "sync_time"};

// Of all rotations the first in the order of texts: which node is called first makes no difference.
std::string name_of(const Placement& placement) {
  std::string name;
  for (const std::uint8_t gpus : placement) name += static_cast<char>('0' + gpus);
  std::string first = name;
  for (std::size_t i = 1; i < name.size(); ++i) {
    std::rotate(name.begin(), name.begin() + 1, name.end());
    first = std::min(first, name);
  }
  return first;
}

}  // namespace

GpuLayout layout_of(const Placement& placement) {
  return {static_cast<std::uint32_t>(placement.size()),
          std::accumulate(placement.begin(), placement.end(), std::uint32_t{0})};
}

MeasuredStep StepTable::mix(const MeasuredStep& a, const MeasuredStep& b, double part_of_b) {
  return {a.step_s + (b.step_s - a.step_s) * part_of_b,
          a.exchange_s + (b.exchange_s - a.exchange_s) * part_of_b};
}

// Beyond the last points it goes on as between the last two.
MeasuredStep StepTable::along(const Curve& curve, double local_batch) {
  if (curve.size() == 1) return curve[0].step;
  auto above = std::find_if(curve.begin() + 1, curve.end() - 1,
                            [&](const Point& point) { return point.local_batch >= local_batch; });
  const Point& low = *std::prev(above);
  return mix(low.step, above->step,
             (local_batch - low.local_batch) / (above->local_batch - low.local_batch));
}

MeasuredStep StepTable::on_nodes(std::uint32_t nodes, double gpus, double local_batch) const {
  const auto first = of_layout_.lower_bound({nodes, 0});
  const auto end = of_layout_.lower_bound({nodes + 1, 0});
  const auto above =
      std::find_if(first, end, [&](const auto& entry) { return entry.first.second >= gpus; });
  if (above == end) return along(std::prev(end)->second, local_batch);
  const MeasuredStep high = along(above->second, local_batch);
  if (above == first || above->first.second == gpus) return high;
  const auto below = std::prev(above);
  return mix(along(below->second, local_batch), high,
             (gpus - below->first.second) / (above->first.second - below->first.second));
}

MeasuredStep StepTable::at(const Placement& placement, double local_batch) const {
  if (const auto known = of_placement_.find(name_of(placement)); known != of_placement_.end())
    return along(known->second, local_batch);
  const GpuLayout layout = layout_of(placement);
  const auto above = of_layout_.lower_bound({layout.nodes, 0});
  if (above == of_layout_.end())
    return on_nodes(of_layout_.rbegin()->first.first, layout.gpus, local_batch);
  const std::uint32_t high = above->first.first;
  if (high == layout.nodes || above == of_layout_.begin())
    return on_nodes(high, layout.gpus, local_batch);
  const std::uint32_t low = std::prev(above)->first.first;
  // Between the numbers of nodes, with as many GPUs on each of them.
  const double on_each = static_cast<double>(layout.gpus) / layout.nodes;
  return mix(on_nodes(low, on_each * low, local_batch), on_nodes(high, on_each * high, local_batch),
             static_cast<double>(layout.nodes - low) / (high - low));
}

std::vector<Placement> StepTable::placements(std::uint32_t nodes,
                                             std::uint32_t gpus_per_node) const {
  std::vector<Placement> all;
  for (const auto& [name, curve] : of_placement_) {
    Placement placement;
    for (const char digit : name) placement.push_back(static_cast<std::uint8_t>(digit - '0'));
    const bool fits = placement.size() <= nodes &&
                      *std::max_element(placement.begin(), placement.end()) <= gpus_per_node;
    if (fits) all.push_back(std::move(placement));
  }
  for (std::uint32_t n = 1; n <= nodes; ++n)
    for (std::uint32_t gpus = n; gpus <= n * gpus_per_node; ++gpus) {
      Placement even(n, static_cast<std::uint8_t>(gpus / n)), uneven(n, 1);
      for (std::uint32_t i = 0; i < gpus % n; ++i) ++even[i];
      for (std::uint32_t i = 0, left = gpus - n; left > 0; ++i) {
        const std::uint32_t more = std::min(left, gpus_per_node - 1);
        uneven[i] = static_cast<std::uint8_t>(uneven[i] + more);
        left -= more;
      }
      all.push_back(std::move(even));
      all.push_back(std::move(uneven));
    }
  return all;
}

Result<StepTable::Point> StepTable::point_at(const Csv& csv, std::size_t row,
                                             const StepColumns& columns) {
  const auto batch = csv.whole(row, columns[0], 1);
  if (!batch) return batch.error();
  const auto step_s = csv.number(row, columns[1], 0);
  if (!step_s) return step_s.error();
  const auto sync_s = csv.number(row, columns[2], 0);
  if (!sync_s) return sync_s.error();
  if (*sync_s >= *step_s)
    return csv.error_at(row, "the exchange of gradients takes the whole step");
  return Point{static_cast<double>(*batch), {*step_s, *sync_s}};
}

Status StepTable::read_placements(const std::filesystem::path& path) {
  const auto csv = Csv::read(path);
  if (!csv) return csv.error();
  const auto column = csv->column("placement");
  if (!column) return column.error();
  const auto of_step = csv->columns(kStepTitles);
  if (!of_step) return of_step.error();
  std::map<Layout, std::map<double, std::vector<MeasuredStep>>> of_layout;
  for (std::size_t row = 0; row < csv->rows(); ++row) {
    const auto point = point_at(*csv, row, *of_step);
    if (!point) return point.error();
    Placement placement;
    for (const char digit : csv->text(row, *column)) {
      if (digit < '1' || digit > '9')
        return csv->error_at(row, "a placement has a digit from 1 to 9 for each node");
      placement.push_back(static_cast<std::uint8_t>(digit - '0'));
    }
    if (placement.empty()) return csv->error_at(row, "the placement is empty");
    const auto [nodes, gpus] = layout_of(placement);
    of_placement_[name_of(placement)].push_back(*point);
    of_layout[{nodes, gpus}][point->local_batch].push_back(point->step);
  }
  if (of_placement_.empty()) return Error{ErrorKind::invalid, path.string() + " has no line"};
  for (const auto& [layout, by_batch] : of_layout)
    for (const auto& [local_batch, steps] : by_batch) {
      MeasuredStep mean;
      for (const MeasuredStep& step : steps) {
        mean.step_s += step.step_s / static_cast<double>(steps.size());
        mean.exchange_s += step.exchange_s / static_cast<double>(steps.size());
      }
      of_layout_[layout].push_back({local_batch, mean});
    }
  return {};
}

Status StepTable::read_scalability(const std::filesystem::path& path) {
  const auto csv = Csv::read(path);
  if (!csv) return csv.error();
  const auto columns = csv->columns<2>({"num_nodes", "num_replicas"});
  if (!columns) return columns.error();
  const auto of_step = csv->columns(kStepTitles);
  if (!of_step) return of_step.error();
  for (std::size_t row = 0; row < csv->rows(); ++row) {
    const auto point = point_at(*csv, row, *of_step);
    if (!point) return point.error();
    const auto nodes = csv->whole(row, (*columns)[0], 1);
    if (!nodes) return nodes.error();
    const auto gpus = csv->whole(row, (*columns)[1], *nodes);
    if (!gpus) return gpus.error();
    of_layout_[{*nodes, *gpus}].push_back(*point);
  }
  return {};
}

Result<StepTable> StepTable::read(const std::filesystem::path& folder) {
  StepTable table;
  if (auto status = table.read_placements(folder / "placements.csv"); !status)
    return status.error();
  if (auto status = table.read_scalability(folder / "scalability.csv"); !status)
    return status.error();
  const auto put_in_order = [](Curve& curve) {
    std::sort(curve.begin(), curve.end(),
              [](const Point& a, const Point& b) { return a.local_batch < b.local_batch; });
    const auto same = [](const Point& a, const Point& b) { return a.local_batch == b.local_batch; };
    curve.erase(std::unique(curve.begin(), curve.end(), same), curve.end());
  };
  for (auto& [name, curve] : table.of_placement_) put_in_order(curve);
  for (auto& [layout, curve] : table.of_layout_) put_in_order(curve);
  table.smallest_local_ = UINT32_MAX;
  for (const auto& [name, curve] : table.of_placement_) {
    table.smallest_local_ =
        std::min(table.smallest_local_, static_cast<std::uint32_t>(curve.front().local_batch));
    table.largest_local_ =
        std::max(table.largest_local_, static_cast<std::uint32_t>(curve.back().local_batch));
  }
  return table;
}

}  // namespace bellows
