// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "elastic/simulate/job.h"

namespace bellows {

struct ClusterShape {
  std::uint32_t nodes = 16;
  std::uint32_t gpus_per_node = 4;

  std::uint32_t gpus() const { return nodes * gpus_per_node; }
};

/// A way to divide a cluster's GPUs among the jobs that are in it.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual BatchRule batch_rule() const = 0;
  /// What a job that arrives is to know of others like it; null: it learns alone. It must stay
  /// where it is.
  virtual const JobClass* class_for(const Application&) { return nullptr; }
  /// The GPUs of each of `jobs`, which are in the order of their submission; they need not fill the
  /// cluster, but must fit into it.
  virtual std::vector<NodeGpus> decide(double now,
                                       const std::vector<const SimulatedJob*>& jobs) = 0;
};

struct SimulationTerms {
  double restart_s =
      30;  ///< a job computes nothing after each change of its GPUs, and at its start
  /// Instead, at the start of a job for which no other has to give GPUs up.
  std::optional<double> start_s = {};
  double round_s = 60;                    ///< the scheduler is asked this often
  bool at_events = false;                 ///< and whenever a job arrives or ends
  double until_s = SimulatedJob::kNever;  ///< the simulation ends here, if jobs are left
};

/// A job held these GPUs from a time to another.
struct HeldSpan {
  std::size_t job;
  double from_s;
  double to_s;
  std::uint32_t gpus;
};

struct Outcome {
  std::vector<SimulatedJob> jobs;  ///< in the order of submission
  std::vector<HeldSpan> spans;
  double end_s = 0;
  std::uint64_t decisions = 0;
};

/// Runs the submissions, which are in the order of time. `progress` is told the simulated time and
/// the number of jobs that are done, after each decision.
Outcome simulate(const std::vector<Submission>& submissions, Scheduler& scheduler,
                 const SimulationTerms& terms,
                 const std::function<void(double, std::size_t)>& progress = {});

}  // namespace bellows
