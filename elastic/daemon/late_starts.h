// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <map>
#include <vector>

#include "slurm/interface.h"

namespace bellows {

/// Brings the starts of jobs forward that Slurm has put off: after a requeue a job waits for the life of a credential,
/// unless somebody has set a start time that is still ahead when its last node is done. Launchers do so, but one may
/// have been killed, or a node may take longer than it foresaw. A start time that a user sets is left alone.
class LateStarts {
 public:
  /// `delay`: stock_requeue_delay() of the cluster.
  explicit LateStarts(std::chrono::seconds delay) : delay_(delay.count()) {}

  /// To be called with what slurmctld said at `now`, by its clock. What fails is tried again at the next call.
  void bring_forward(Slurm& slurm, const std::vector<SlurmJob>& elastic, std::time_t now);

 private:
  std::time_t delay_;
  std::map<std::uint32_t, std::time_t> busy_;  ///< by job: when it was last seen to run or complete
};

}  // namespace bellows
