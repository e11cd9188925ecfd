// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/protocol/protocol.h"
#include "launcher/base/side_question.h"
#include "launcher/machine/own_checkpoint.h"
#include "launcher/machine/stop_clock.h"
#include "launcher/slurm/limit_probe.h"

namespace bellows {

/// The time that Slurm leaves a run, and what a stop would take of it. Asks slurmctld now and then,
/// never waiting for the answer, and reckons on from the last one when none comes. Times are
/// seconds of one clock that does not jump.
class TimeLeft {
 public:
  /// Returns a line of JobLimits, or nothing; runs in a process of its own.
  using Ask = std::function<std::string()>;

  /// The ranks start anew.
  void begin_attempt();
  void add_poll(std::vector<pollfd>& fds) const;
  void note_step(std::uint64_t step, double now) { clock_.note_step(step, now); }
  /// Takes `shard` and `committed` events for how long a save takes, and leaves others.
  void note_save(const Event& event, double now);

  /// Seconds that a save takes, going by the last ones, if there were any.
  std::optional<double> usual_save() const {
    return clock_.has_saved() ? std::optional(clock_.save_seconds()) : std::nullopt;
  }

  /// Time passed in which nobody ran: that no answer came meanwhile says nothing.
  void note_pause(double now);
  /// Asks when it is time to. The answer to the last question, once; or what is left by the one
  /// before, when it is time to stop and slurmctld is silent.
  std::optional<JobLimits> look(const Ask& ask, double now);
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
  std::optional<JobLimits> reckon(double now) const;

  SideQuestion question_;
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
