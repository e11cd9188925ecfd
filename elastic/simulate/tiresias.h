// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "elastic/simulate/cluster.h"

namespace bellows {

/// The two-queue least-attained-service scheduler of Gu et al., "Tiresias: A GPU Cluster Manager
/// for Distributed Deep Learning" (NSDI 2019): jobs of the size that they asked for; those that
/// have had more than 16 GPU-hours go behind all others. Each queue is in the order of arrival.
std::unique_ptr<Scheduler> make_tiresias(const ClusterShape& shape);

/// No elasticity: jobs of the size that they asked for, in the order of arrival; where one has to
/// wait, smaller ones that fit go first.
std::unique_ptr<Scheduler> make_fixed_size(const ClusterShape& shape);

}  // namespace bellows
