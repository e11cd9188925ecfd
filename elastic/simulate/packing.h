// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "elastic/simulate/cluster.h"

namespace bellows {

/// GPUs that no job holds, on each node.
class FreeGpus {
 public:
  explicit FreeGpus(const ClusterShape& shape)
      : free_(shape.nodes, static_cast<std::uint8_t>(shape.gpus_per_node)) {}

  std::uint32_t count() const;
  void take(const NodeGpus& gpus);
  /// So many GPUs, each time all that are needed of the node that has most of them. There must be
  /// as many.
  NodeGpus take_most_free(std::uint32_t gpus);
  /// So many GPUs on as few nodes as can be: of the nodes that have enough, the one that has least.
  NodeGpus take_packed(std::uint32_t gpus);

 private:
  NodeGpus free_;
};

/// Places for jobs of these sizes, which must fit into the cluster together. A job that keeps its
/// size keeps its place, unless another one would have to be spread over more nodes than it needs:
/// then jobs of the emptiest nodes move.
std::vector<NodeGpus> pack_jobs(const ClusterShape& shape,
                                const std::vector<const SimulatedJob*>& jobs,
                                const std::vector<std::uint32_t>& sizes);

}  // namespace bellows
