// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/result.h"
#include "elastic/optimizer/plan.h"

namespace bellows {

/// GPUs of a job on one node.
struct PlacedGpus {
  std::uint32_t node = 0;
  std::uint32_t gpus = 0;
};

/// The GPUs of a job; empty: it has none.
using GpuPlace = std::vector<PlacedGpus>;

/// A pool's nodes, which have equally many GPUs when all are free.
struct PoolNodes {
  std::uint32_t gpus_per_node = 0;
  std::vector<std::uint32_t> free;  ///< GPUs of each node that nobody holds
};

struct PlacedPlan {
  std::vector<TenantDivision> tenants;
  std::vector<std::vector<GpuPlace>> places;  ///< of each tenant's jobs
  std::size_t solves = 0;                     ///< 1: all of the best division fitted
};

/// Divides a pool as plan_pool does, and says where the GPUs are. A job needs its GPUs on as few
/// nodes as can be: whole nodes, and the rest on one. A job that keeps its size keeps its place;
/// those that change are placed largest first, each rest on the node that has least room for it. A
/// size that finds no place is struck from its job, and what is left is divided again, until all
/// fits; that is not always the best that could be placed. `held`: of each tenant's jobs, as many
/// GPUs as their `now` says. invalid: it says something else, or something of a node that is not
/// there; other errors are those of plan_pool.
Result<PlacedPlan> plan_places(std::vector<TenantShare> tenants,
                               const std::vector<std::vector<GpuPlace>>& held,
                               const PoolNodes& nodes, Surplus surplus);

}  // namespace bellows
