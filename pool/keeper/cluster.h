// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "slurm/job.h"

namespace bellows::pool {

/// What a keeper asks of Slurm: SlurmCluster, and a fake in unit tests. Calls block. An error says
/// nothing about the jobs: slurmctld may be away, and a refusal may be gone in a minute.
class Cluster {
 public:
  Cluster() = default;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  virtual ~Cluster() = default;

  /// Submits one more member. Its job.
  virtual Result<std::uint32_t> submit() = 0;
  virtual Status cancel(std::uint32_t job) = 0;
  /// All members' jobs that Slurm knows, whoever submitted them.
  virtual Result<std::vector<SlurmJob>> members() = 0;
};

}  // namespace bellows::pool
