// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "slurm/interface.h"

namespace bellows {

/// Which rank runs where: one for each GPU the job really holds, in the order of the nodes. A job
/// without GPUs gets one rank for each task. Or there is one rank, which has all of them.
class RankLayout {
 public:
  /// invalid: the job holds nothing a rank could use.
  static Result<RankLayout> of(const SlurmJob& job);
  /// The one rank of a job with one node. denied: it has more.
  static Result<RankLayout> one_of(const SlurmJob& job);
  /// That of the kind of layout that this is, for what the job holds now.
  Result<RankLayout> again(const SlurmJob& job) const { return one_ ? one_of(job) : of(job); }

  std::uint32_t world() const { return world_; }
  std::uint32_t gpus() const { return gpus_; }
  /// Processes that train: the ranks, or what the one rank starts.
  std::uint32_t trainers() const { return trainers_; }
  /// Nodes that have ranks, in rank order. The first one's agent commits.
  std::vector<std::string> nodes() const;
  const std::map<std::string, std::vector<std::uint32_t>>& ranks() const { return ranks_; }

  /// srun's options for the step of ranks: places every rank explicitly, since the environment of a
  /// resized job still tells its first size.
  std::vector<std::string> rank_options() const;
  /// srun's options for one agent on each node.
  std::vector<std::string> agent_options() const;
  /// More ranks than CPUs somewhere: they must not spin while they wait.
  bool crowded() const { return crowded_; }

 private:
  std::vector<NodeShare> shares_;  ///< gpus: the number of ranks
  std::map<std::string, std::vector<std::uint32_t>> ranks_;
  std::uint32_t world_ = 0;
  std::uint32_t gpus_ = 0;
  std::uint32_t trainers_ = 0;
  std::uint32_t cpus_per_task_ = 1;
  bool one_ = false;
  bool crowded_ = false;
  bool lost_gpus_ = false;  ///< it has fewer than it asked for
};

}  // namespace bellows
