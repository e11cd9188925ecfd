// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/record/event_log.h"
#include "launcher/slurm/records.h"
#include "slurm/interface.h"

namespace bellows {

/// A change of a job's state, as its launcher or Slurm tells it.
struct HistoryEntry {
  JobEvent event;
  bool of_slurm = false;  ///< no launcher saw it
};

/// One start of the ranks, and what came of it.
struct HistoryAttempt {
  std::uint32_t restart = 0;
  std::uint32_t attempt = 0;
  double begin = 0;
  double end = 0;
  bool over = false;
  std::uint32_t gpus = 0;
  std::vector<std::string> nodes;
  std::map<std::string, double> phases;  ///< seconds in each state; QUEUED: before it
  std::optional<std::uint64_t> from;     ///< step; none: the start
  std::optional<std::uint64_t> to;       ///< newest committed step at its end
  /// Training since the newest commit, when it ended unplanned. None: no step was ever told, as of
  /// a program that saves by itself.
  std::optional<double> lost_s = 0;
  std::optional<std::uint64_t> lost_steps;  ///< where the launcher could still say
  std::string ended;                        ///< the state that followed; empty: it is not over
  std::string cause;
};

struct History {
  std::vector<HistoryEntry> entries;  ///< oldest first
  std::vector<HistoryAttempt> attempts;
  std::vector<std::string> missing;  ///< sentences on what nobody can tell
};

/// COMPLETED, FAILED or CANCELLED.
bool is_final(const std::string& state);
/// With it a run leaves its nodes.
bool closes_run(const JobEvent& event);
/// It waits for its first start in this run.
bool is_submission(const JobEvent& event);

/// The state and cause with which Slurm ends a run.
struct Ending {
  std::string state;
  std::string cause;
};
Ending ending_of(const SlurmRun& run);

/// The same events, with saves in a row that went well as one: its cause tells the steps.
std::vector<JobEvent> collapse_saves(const std::vector<JobEvent>& events);

/// What each attempt did; `now` ends those that are not over.
std::vector<HistoryAttempt> sum_up(const std::vector<HistoryEntry>& entries, double now);

/// Merges what the launchers wrote with Slurm's records. `runs` of accounting may be empty, `job`
/// is what slurmctld says, if it knows the job. Slurm's times are whole seconds of its own clock.
History make_history(const std::vector<JobEvent>& events, std::vector<SlurmRun> runs,
                     const std::optional<SlurmJob>& job, double now);

}  // namespace bellows
