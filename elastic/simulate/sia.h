// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "elastic/simulate/cluster.h"

namespace bellows {

/// The scheduler of Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized
/// ML-cluster scheduling" (SOSP 2023), for GPUs of one type: the least sum of (goodput over that of
/// the smallest size) to the power of -0.5, where waiting costs 1.1, over powers of 2 inside a node
/// and whole nodes; a job grows to at most twice the GPUs that it was seen on, and a change is
/// lowered by what the job's restarts have cost. Solved exactly, by our optimizer.
std::unique_ptr<Scheduler> make_sia(const ClusterShape& shape, double restart_s);

}  // namespace bellows
