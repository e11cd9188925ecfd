// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "elastic/simulate/cluster.h"
#include "elastic/simulate/goodput_table.h"

namespace bellows {

/// GPUs of each job on each node, a row for each job.
using PolluxState = std::vector<std::uint8_t>;

/// What Pollux decides about at one time: the jobs, what they hold, and what a division is worth.
class PolluxProblem {
 public:
  /// `tables` keeps what is known of each job between decisions. The jobs in the order in which
  /// they come first where GPUs are too few.
  PolluxProblem(double now, const std::vector<const SimulatedJob*>& jobs, const ClusterShape& shape,
                double restart_s, std::map<const SimulatedJob*, GoodputTable>& tables);

  std::size_t jobs() const { return jobs_.size(); }
  std::uint32_t nodes() const { return shape_.nodes; }
  std::uint32_t gpus_per_node() const { return shape_.gpus_per_node; }
  /// What the jobs hold now.
  const PolluxState& held() const { return held_; }
  std::uint32_t most_gpus(std::size_t job) const { return jobs_[job].most_gpus; }
  /// The sum over jobs of 1 / speedup: the less, the better.
  double cost(const PolluxState& state);

 private:
  struct Job {
    const SimulatedJob* job;
    GoodputTable* table;
    std::uint32_t most_gpus;
    double fair_goodput;  ///< on its fair share; 0: not known yet
    double restart_factor;
    std::vector<double> speedups;  ///< by nodes and GPUs; negative: not asked for yet
  };

  double speedup(Job& job, std::uint32_t nodes, std::uint32_t gpus) const;

  ClusterShape shape_;
  double fair_gpus_;
  std::vector<Job> jobs_;
  PolluxState held_;
};

}  // namespace bellows
