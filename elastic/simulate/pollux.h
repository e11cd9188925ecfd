// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "elastic/simulate/cluster.h"

namespace bellows {

/// How hard the search tries, and what it knows.
struct PolluxSearch {
  std::uint32_t population = 100;
  std::uint32_t generations = 30;
  std::uint32_t seed = 1;
  double restart_s = 30;  ///< what it takes a restart to cost
};

/// The scheduler of Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep
/// Learning" (OSDI 2021): the power mean with exponent -1 of all jobs' goodput over that on their
/// fair share, with a penalty for restarts, found by a genetic search over places; a job grows to
/// at most twice the GPUs that it was seen on, and no node has ranks of two jobs that have ranks
/// elsewhere.
std::unique_ptr<Scheduler> make_pollux(const ClusterShape& shape, const PolluxSearch& search);

}  // namespace bellows
