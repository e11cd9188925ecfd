// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <vector>

#include "elastic/daemon/job_book.h"
#include "slurm/interface.h"

namespace bellows {

/// Mends the start times of jobs that went back into the queue without their launcher.
///
/// Too late: after a requeue a job waits for the life of a credential, unless somebody has set a
/// start time that is still ahead when its last node is done. Launchers do so, but one may have
/// been killed, or a node may take longer than it foresaw. A start time that a user sets stands.
///
/// Too early: a slurmctld that was killed within seconds of a start takes the run for one that
/// never began. If it starts the job before the nodes have ended that run, Slurm drains a node.
class StartTimes {
 public:
  /// `stock_delay`: stock_requeue_delay() of the cluster.
  explicit StartTimes(std::chrono::seconds stock_delay) : delay_(stock_delay.count()) {}

  /// To be called with what slurmctld said at `now`, by its clock, and what launchers said until
  /// `time`. Only jobs with notes are mended, also in `jobs`. What fails is tried again at the next
  /// call.
  void mend(Slurm& slurm, std::vector<SlurmJob>& jobs,
            const std::map<std::uint32_t, JobNotes>& notes, std::time_t now,
            JobBook::Clock::time_point time);

 private:
  /// Of a job, at the last call.
  struct Sight {
    std::time_t at = 0;
    std::uint32_t restarts = 0;
    bool waits = false;
  };

  bool is_put_off(const SlurmJob& job, std::time_t now) const;

  std::time_t delay_;
  std::map<std::uint32_t, Sight> seen_;
};

}  // namespace bellows
