// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "elastic/policy/objective.h"
#include "elastic/simulate/cluster.h"

namespace bellows {

/// Our own scheduler: the optimizer and the policy that bellowsd uses. Sizes are powers of 2 inside
/// a node and whole nodes; a job grows to at most twice the GPUs that it was seen on, or one of its
/// class, which are the jobs of its application. What is left of a job is foreseen from the service
/// of those of its class that have finished.
std::unique_ptr<Scheduler> make_elastic(const ClusterShape& shape, const ObjectiveTerms& terms);

/// The same, told what is left to do of each job, so that short rests go first. Nothing real knows
/// that. It shows what could be gained by knowing it, and is no bound: others may do better.
std::unique_ptr<Scheduler> make_informed(const ClusterShape& shape, const ObjectiveTerms& terms);

/// The baseline of Saxena et al., "Effective Elastic Scaling of Deep Learning Workloads"
/// (2006.13878): the number of GPUs is scaled by the best sum of speed-ups, and the batch stays
/// what it was submitted with. Speeds are those that were measured, as if each job had been
/// profiled.
std::unique_ptr<Scheduler> make_fixed_batch(const ClusterShape& shape, double restart_s);

}  // namespace bellows
