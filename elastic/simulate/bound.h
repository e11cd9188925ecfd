// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "elastic/simulate/cluster.h"

namespace bellows {

/// What no scheduler can do better, by two relaxations. Alone, a job gets whatever GPUs and batch
/// make most progress, at each epoch anew and for one restart in all. Together, all GPUs are one
/// machine, which needs of each job the fewest GPU-seconds that it could be done with, and runs the
/// job first that has least left. Nothing can have done more jobs at any time than either of them
/// (Schrage, "A Proof of the Optimality of the Shortest Remaining Processing Time Discipline",
/// 1968), so that the k-th job that is done is done no sooner than in the later of the two.
class LeastCompletion {
 public:
  explicit LeastCompletion(const ClusterShape& shape) : shape_(shape) {}

  /// Of the mean completion, in seconds, if all of these are done; they are in the order of time.
  double mean_s(const std::vector<Submission>& submissions, double restart_s);

 private:
  struct Least {
    double alone_s = 0;
    double gpu_s = 0;
  };
  /// Of a step, or of progress by one.
  struct Costs {
    double s;
    double gpu_s;
  };
  using BySamples = std::map<std::uint64_t, Costs>;
  using ByEpoch = std::vector<Costs>;

  const Least& of(const Submission& submission);
  const ByEpoch& adapted(const Application& application);
  ByEpoch fixed(const Application& application, std::uint32_t batch) const;

  static void add(const Application& application, const Placement& placement, const Batch& batch,
                  BySamples& costs);
  static ByEpoch by_epoch(const Application& application, const BySamples& costs);

  ClusterShape shape_;
  std::map<std::pair<const Application*, std::uint32_t>, Least> known_;  ///< by submitted batch
  std::map<const Application*, ByEpoch> adapted_;
};

}  // namespace bellows
