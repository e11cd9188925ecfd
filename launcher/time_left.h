// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/protocol.h"
#include "common/slurm_client.h"
#include "launcher/limit_probe.h"
#include "launcher/own_checkpoint.h"
#include "launcher/stop_clock.h"

namespace bellows {

/// The time that Slurm leaves a run, and what a stop would take of it. Asks slurmctld now and then,
/// never waiting for the answer. Times are seconds of one clock that does not jump.
class TimeLeft {
 public:
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

  /// Asks when it is time to; the answer to the last question, once.
  std::optional<JobLimits> look(SlurmClient& slurm, std::uint32_t job, double now);
  /// How long before its end the run must begin to stop; looks more often as that comes near.
  /// `own`: how the program saves; null: by libbellows.
  double lead(const JobLimits& limits, const OwnCheckpoint* own, double now);
  /// A sentence when a preemption leaves too little time, once it is known how much both take;
  /// empty before that, and when it was said.
  std::string complaint(const OwnCheckpoint& own);

 private:
  /// A step that has parts.
  struct SaveSeen {
    std::uint64_t bytes = 0;
    double begun = std::numeric_limits<double>::infinity();
  };
  LimitProbe probe_;
  StopClock clock_;
  double look_at_ = 0;
  std::map<std::uint64_t, SaveSeen> seen_;
  std::optional<SlurmGrace> grace_;
  bool complained_ = false;
};

}  // namespace bellows
