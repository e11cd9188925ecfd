// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "slurm/job.h"

namespace bellows::pool {

/// The jobs of a pool that Slurm knows, from one answer. A value.
struct PoolQueue {
  std::vector<SlurmJob> members;     ///< whoever submitted them
  std::optional<SlurmJob> keeper{};  ///< the job that the keeper is in
};

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
  virtual Result<PoolQueue> jobs() = 0;
};

}  // namespace bellows::pool
