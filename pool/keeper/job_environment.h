// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/pool_option.h"

namespace bellows::pool {

/// sbatch's --pool as a variable for sbatch's environment: without Bellows' plugin sbatch would
/// refuse the option, and takes no notice of the variable.
std::string pool_variable(const PoolOption& pool);

/// The environment of this process without what its own job has of Slurm and Bellows: for a job of
/// its own. SBATCH_ and SLURM_ variables would be options of sbatch.
std::vector<std::string> environment_outside_jobs();

}  // namespace bellows::pool
