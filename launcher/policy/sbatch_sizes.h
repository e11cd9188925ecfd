// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "jobsubmit/admission/gpu_request.h"

namespace bellows {

/// What a job says about the nodes that it wants. Without nodes or tasks, sbatch takes it for the
/// number of tasks on each.
struct NodeShape {
  std::optional<std::uint32_t> sockets;
  std::optional<std::uint32_t> cores;
  std::optional<std::uint32_t> threads;
  bool given = false;  ///< by --extra-node-info: counts also without --nodes
};

/// The numbers that sbatch of Slurm 22.05 derives from others before it submits: tasks from nodes,
/// nodes from GPUs, and so on. What sbatch would refuse stays as it is. `cpus_per_task` is nothing
/// where the user did not say it.
void derive_sizes(Sizes& sizes, const NodeShape& shape, std::optional<std::uint32_t> cpus_per_gpu,
                  std::optional<std::uint32_t>& cpus_per_task);

}  // namespace bellows
