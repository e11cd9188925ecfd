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

/// A pool's nodes.
struct PoolNodes {
  std::vector<std::uint32_t> free;  ///< GPUs of each that nobody holds
};

/// What is known of a job's place.
struct KnownPlace {
  GpuPlace held;
  std::uint32_t floor = 0;  ///< GPUs that it has beside those that the division gives it
  /// It starts with what it asks for wherever there is room: no size is struck from it.
  bool anywhere = false;
};

struct PlacedPlan {
  std::vector<TenantDivision> tenants;
  std::vector<std::vector<GpuPlace>> places;  ///< of each tenant's jobs
  std::size_t solves = 0;                     ///< 1: all of the best division fitted
  std::size_t misfits = 0;                    ///< jobs without a place after all solves
};

/// Divides `gpus` as plan_pool does, and says where they are. A job needs its GPUs on as few nodes
/// as it would take if none of these jobs held any. A job that keeps its size keeps its place;
/// those that change are placed largest first, each rest on the node that has least room for it. A
/// size that finds no place is struck from its job, and what is left is divided again, until all
/// fits or kMostSolves; that is not always the best that could be placed. The smallest size of a
/// job that does not run is not struck, but placed wherever there is room: it would wait for ever.
/// `at`: of each tenant's jobs, with as many GPUs held as the floor and the job's `now` say, but
/// for one that starts anywhere. invalid: it says something else, or something of a node that is
/// not there; other errors are those of plan_pool.
Result<PlacedPlan> plan_places(std::vector<TenantShare> tenants,
                               const std::vector<std::vector<KnownPlace>>& at,
                               const PoolNodes& nodes, std::uint32_t gpus, Surplus surplus);

/// After that many, jobs may be left without a place: it is for Slurm to find one.
inline constexpr std::size_t kMostSolves = 8;

}  // namespace bellows
