// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "elastic/optimizer/tenant_curve.h"
#include "elastic/simulate/cluster.h"

namespace bellows {

/// A power of 2 inside a node, or whole nodes.
bool is_plain_size(std::uint32_t gpus, const ClusterShape& shape);

/// Twice the GPUs that a job was seen on, as far as there are as many and it may have them.
std::uint32_t most_to_explore(const SimulatedJob& job, const ClusterShape& shape);

/// So many GPUs on as few nodes as can be.
Placement packed(std::uint32_t gpus, const ClusterShape& shape);

/// Seconds that a step of a job takes on so many packed GPUs with the batch it was submitted with,
/// as measured.
double submitted_step_s(const SimulatedJob& job, std::uint32_t gpus, const ClusterShape& shape);

/// The best division among jobs of these values, which are in the order of `jobs`, and places for
/// it. Nothing for anybody if the optimizer refuses the values.
std::vector<NodeGpus> divide_and_pack(std::vector<ElasticJob> values,
                                      const std::vector<const SimulatedJob*>& jobs,
                                      const ClusterShape& shape);

}  // namespace bellows
