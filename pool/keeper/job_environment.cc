// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/job_environment.h"

#include <string_view>

#include "common/own_process.h"
#include "common/variables.h"

namespace bellows::pool {

std::string pool_variable(const PoolOption& pool) {
  return std::string(kExported) + std::string(kOptionPrefix) + "pool=" + pool.to_string();
}

std::vector<std::string> environment_outside_jobs() {
  std::vector<std::string> environment = own_environment();
  std::erase_if(environment, [](std::string_view text) {
    const bool is_ours = text.starts_with("SLURM_CONF=") || text.starts_with("BELLOWS_POOLS=");
    const bool is_of_job = text.starts_with("SLURM") || text.starts_with("SBATCH_") ||
                           text.starts_with("SRUN_") || text.starts_with("BELLOWS_") ||
                           text.starts_with("SPANK_") || text.starts_with("PMI") ||
                           text.starts_with("CUDA_VISIBLE_DEVICES=") || text.starts_with("TMPDIR=");
    return is_of_job && !is_ours;
  });
  return environment;
}

}  // namespace bellows::pool
