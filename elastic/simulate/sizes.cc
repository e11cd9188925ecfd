// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/sizes.h"

#include <algorithm>
#include <utility>

#include "elastic/simulate/packing.h"

namespace bellows {

bool is_plain_size(std::uint32_t gpus, const ClusterShape& shape) {
  return gpus < shape.gpus_per_node ? (gpus & (gpus - 1)) == 0 : gpus % shape.gpus_per_node == 0;
}

std::uint32_t most_to_explore(const SimulatedJob& job, const ClusterShape& shape) {
  return std::min(
      {std::max(2 * job.speed().most_gpus(), 1U), shape.gpus(), job.application().largest_gpus()});
}

Placement packed(std::uint32_t gpus, const ClusterShape& shape) {
  Placement placement;
  for (; gpus > 0; gpus -= placement.back())
    placement.push_back(static_cast<std::uint8_t>(std::min(gpus, shape.gpus_per_node)));
  return placement;
}

double submitted_step_s(const SimulatedJob& job, std::uint32_t gpus, const ClusterShape& shape) {
  const Placement placement = packed(gpus, shape);
  const Batch batch =
      lay_out(job.application().limits(), layout_of(placement), job.submission().batch);
  return job.application().step_s(placement, batch);
}

std::vector<NodeGpus> divide_and_pack(std::vector<ElasticJob> values,
                                      const std::vector<const SimulatedJob*>& jobs,
                                      const ClusterShape& shape) {
  std::vector<std::uint32_t> sizes(jobs.size());
  if (const auto curve = TenantCurve::of(std::move(values), shape.gpus()))
    sizes = curve->divide(std::min(shape.gpus(), curve->most()));
  return pack_jobs(shape, jobs, sizes);
}

}  // namespace bellows
