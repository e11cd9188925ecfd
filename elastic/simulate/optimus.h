// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "elastic/simulate/cluster.h"

namespace bellows {

/// Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters"
/// (EuroSys 2018), with a batch that stays and an oracle, as Pollux is compared with it: it knows
/// how long the steps of a job take at every size and how many are left. One GPU for each job, then
/// one more for whichever ends sooner by most.
std::unique_ptr<Scheduler> make_optimus(const ClusterShape& shape);

}  // namespace bellows
