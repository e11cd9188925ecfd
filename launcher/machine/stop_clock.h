// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "slurm/interface.h"

namespace bellows {

/// What a preempted job has, for a person: "30 s (GraceTime)".
std::string time_of_preemption(const SlurmGrace& grace);

/// Tells from what saves and steps took when a stop must begin so that it is over when Slurm ends
/// the job. Times are seconds of one clock that does not jump. Does no I/O.
class StopClock {
 public:
  /// A step was committed: all its bytes, and how long it took from the ranks' first call on.
  void note_save(std::uint64_t bytes, double seconds);
  /// Reports the newest step that is known; may be called any number of times.
  void note_step(std::uint64_t step, double now);
  /// The ranks start again: more than one step's time passes between the last step and the next
  /// one.
  void forget_steps() { last_step_.reset(); }

  /// How long a save will take at worst, judging by the last ones; a guess if there were none.
  double save_seconds() const;
  double step_seconds() const;
  bool has_saved() const { return !saves_.empty(); }

  /// How long before its end the run must begin to stop, for one that lasts `total` seconds.
  double lead(double total) const;
  /// The same for a program that saves by itself and is given `grace` seconds for it.
  static double lead_of_own(std::uint32_t grace, double total);

  /// A sentence when a preemption leaves too little time for a save; else empty.
  std::string complaint(const SlurmGrace& grace) const;
  /// The same for a run that lasts `total` seconds in all.
  std::string complaint(double total) const;
  static std::string complaint_of_own(std::uint32_t grace, double total);

 private:
  double wanted() const;
  struct Save {
    std::uint64_t bytes;
    double seconds;
  };
  std::deque<Save> saves_;    ///< the last few
  std::deque<double> steps_;  ///< seconds for one step, the last few
  std::optional<std::uint64_t> last_step_;
  double last_step_at_ = 0;
};

}  // namespace bellows
