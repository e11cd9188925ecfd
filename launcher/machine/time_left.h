// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/protocol/protocol.h"
#include "launcher/machine/own_checkpoint.h"
#include "launcher/machine/stop_clock.h"
#include "launcher/slurm/limit_probe.h"

namespace bellows {

/// The time that Slurm leaves a run, and how much of it a stop would take. Says when to ask
/// slurmctld, and extrapolates from the last answer if none comes. Times are seconds of one clock
/// that does not jump.
class TimeLeft {
 public:
  /// The ranks start again.
  void begin_attempt();
  void note_step(std::uint64_t step, double now) { clock_.note_step(step, now); }
  /// Learns from event::Shard and event::Committed how long a save takes, and ignores others.
  void note_save(const Event::Body& event, double now);

  /// Seconds that a save takes, going by the last ones, if there were any.
  std::optional<double> usual_save() const {
    return clock_.has_saved() ? std::optional(clock_.save_seconds()) : std::nullopt;
  }

  /// Nobody ran for some time, so the lack of an answer in that time means nothing.
  void note_pause(double now);
  /// It is time to ask slurmctld, which the caller does then.
  bool is_due(double now);
  void note_answer(const JobLimits& limits, double now);
  /// What is left by the last answer, when it is time to stop and slurmctld is silent.
  std::optional<JobLimits> reckon(double now) const;
  /// How long before its end the run must begin to stop; looks more often as that comes near.
  /// `own`: how the program saves; null: by libbellows.
  double lead(const JobLimits& limits, const OwnCheckpoint* own, double now);
  /// A sentence when a preemption or the time limit leaves too little time, once it is known how
  /// much both take; empty before that, and when each was said.
  std::string complaint(const OwnCheckpoint& own);

 private:
  /// A step that has parts.
  struct SaveSeen {
    std::uint64_t bytes = 0;
    double begun = std::numeric_limits<double>::infinity();
  };
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  double look_at() const;

  StopClock clock_;
  double asked_ = -kNever;        ///< when the last question was asked
  double silent_since_ = kNever;  ///< when the first one was that has had no answer
  double stop_at_ = kNever;       ///< by the last answer
  std::optional<JobLimits> known_;
  double known_at_ = 0;
  std::map<std::uint64_t, SaveSeen> seen_;
  bool complained_ = false;  ///< of the grace of a preemption
  bool complained_of_limit_ = false;
};

}  // namespace bellows
