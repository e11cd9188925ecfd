// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "elastic/policy/step_time.h"
#include "elastic/simulate/csv.h"

namespace bellows {

/// GPUs of a job on each of its nodes, none of them 0.
using Placement = std::vector<std::uint8_t>;

GpuLayout layout_of(const Placement& placement);

/// How long steps lasted where they were measured, in seconds.
struct MeasuredStep {
  double step_s = 0;
  double exchange_s = 0;  ///< of which ranks waited for gradients
};

/// The measured steps of one model, by placement and local batch, and between those: along the
/// local batch for a placement that was measured, else along the local batch, the GPUs and the
/// nodes. A value type.
class StepTable {
 public:
  /// Of the files placements.csv and scalability.csv of a folder. Errors name file and line.
  static Result<StepTable> read(const std::filesystem::path& folder);

  /// What has a time of its own on such a cluster: the placements that were measured, and two for
  /// each number of nodes and GPUs, as even and as uneven as can be.
  std::vector<Placement> placements(std::uint32_t nodes, std::uint32_t gpus_per_node) const;
  MeasuredStep at(const Placement& placement, double local_batch) const;
  std::uint32_t smallest_local() const { return smallest_local_; }
  std::uint32_t largest_local() const { return largest_local_; }

 private:
  struct Point {
    double local_batch;
    MeasuredStep step;
  };
  using Curve = std::vector<Point>;                        ///< in the order of local_batch
  using Layout = std::pair<std::uint32_t, std::uint32_t>;  ///< nodes, GPUs

  using StepColumns = std::array<std::size_t, 3>;

  static Result<Point> point_at(const Csv& csv, std::size_t row, const StepColumns& columns);
  static MeasuredStep along(const Curve& curve, double local_batch);
  static MeasuredStep mix(const MeasuredStep& a, const MeasuredStep& b, double part_of_b);
  Status read_placements(const std::filesystem::path& path);
  Status read_scalability(const std::filesystem::path& path);
  /// On a number of nodes that was measured.
  MeasuredStep on_nodes(std::uint32_t nodes, double gpus, double local_batch) const;

  std::map<std::string, Curve> of_placement_;
  std::map<Layout, Curve> of_layout_;
  std::uint32_t smallest_local_ = 0;
  std::uint32_t largest_local_ = 0;
};

}  // namespace bellows
