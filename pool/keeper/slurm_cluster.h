// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pool/keeper/cluster.h"
#include "slurm/client.h"

namespace bellows::pool {

/// Slurm through sbatch, so that #SBATCH lines and options of plugins are read as ever, scancel and
/// libslurm.
class SlurmCluster final : public Cluster {
 public:
  /// `dir`: the pool's, which has its batch script; `keeper`: the keeper's job, 0: it is in none.
  SlurmCluster(std::string pool, std::string dir, std::uint32_t keeper);

  uid_t slurm_user() const { return slurm_.slurm_user(); }
  std::string auth_info() const { return slurm_.auth_info(); }

  Result<std::uint32_t> submit() override;
  Status cancel(std::uint32_t job) override;
  Result<PoolQueue> jobs() override;

 private:
  const std::string pool_;
  const std::string dir_;
  const std::uint32_t keeper_;
  const std::vector<std::string> environment_;
  SlurmClient slurm_;
};

}  // namespace bellows::pool
