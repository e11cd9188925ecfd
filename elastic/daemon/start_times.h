// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "elastic/daemon/cluster.h"
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
/// never began, and a node that was cut off may return before the next start. If the job starts
/// before its nodes have ended the last run, Slurm drains a node and holds the job.
class StartTimes {
 public:
  /// `stock_delay`: stock_requeue_delay() of the cluster.
  explicit StartTimes(std::chrono::seconds stock_delay) : delay_(stock_delay.count()) {}

  /// To be called with what slurmctld said, and what launchers said until `time`. Only jobs with
  /// notes are mended, also in `cluster`. What fails is tried again at the next call.
  void mend(Slurm& slurm, ClusterState& cluster, const std::map<std::uint32_t, JobNotes>& notes,
            JobBook::Clock::time_point time);

 private:
  /// Of a job, at the last call.
  struct Sight {
    std::time_t at = 0;
    std::uint32_t restarts = 0;
    bool waits = false;
    std::time_t ran = 0;             ///< last
    std::vector<std::string> nodes;  ///< of its last run
    std::set<std::string> lost;      ///< of these: were so when it ended, or since
  };

  /// Nodes, and when they were booted.
  using Answering = std::map<std::string, std::time_t>;

  Sight look(const SlurmJob& job, std::time_t now, const Answering& answering) const;
  /// By slurmctld's clock; nothing: as it is.
  std::optional<std::time_t> start_of(const SlurmJob& job, const JobNotes& notes, Sight& sight,
                                      const Answering& answering,
                                      JobBook::Clock::time_point time) const;
  bool is_put_off(const SlurmJob& job, std::time_t now) const;

  std::time_t delay_;
  std::map<std::uint32_t, Sight> seen_;
  std::map<std::string, std::time_t> silent_since_;  ///< of nodes
};

}  // namespace bellows
