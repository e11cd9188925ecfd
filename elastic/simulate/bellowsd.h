// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "elastic/daemon/planner.h"
#include "elastic/simulate/cluster.h"

namespace bellows {

/// bellowsd's own planner and its notes of jobs, beside a Slurm that starts what waits in the order
/// of submission at the size that it asks for, on as few nodes as are free for it. As on a cluster,
/// jobs keep the batch they were submitted with, a speed is known once a launcher has seen steps
/// for a while, one plan is carried out at a time, and what runs is not moved only to make room on
/// a node.
std::unique_ptr<Scheduler> make_bellowsd(const ClusterShape& shape, const PlanTerms& plan,
                                         const SimulationTerms& terms);

}  // namespace bellows
