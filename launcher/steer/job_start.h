// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "launcher/steer/steering.h"

namespace bellows {

/// A number of GPUs that a job was just asked for, and the one that it had.
struct SizeChange {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};

/// Watches a pending job until it runs, and makes it start soon: a requeued job would wait for the
/// lifetime of a credential, and nothing makes Slurm look at a job whose start time has come. When
/// Slurm says that it can never run with its new size, the job gets its old one back.
class JobStart {
 public:
  /// `least_restarts`: the run that is waited for has as many or more; `change`: none when the job
  /// keeps the size with which it ran.
  JobStart(const Steering& steering, const SlurmJob& job, std::uint32_t least_restarts,
           std::uint32_t gpus, std::optional<SizeChange> change)
      : steering_(steering),
        job_(job),
        least_restarts_(least_restarts),
        gpus_(gpus),
        change_(change) {}

  /// For a job whose start must not come nearer: what is left of its last run has to be over.
  void keep_begin_time() { pulled_ = true; }
  /// To be called at once after what put the job into the queue.
  std::optional<CommandFailure> run();
  /// For a job that is pending in any case: waits until Slurm has looked for a place for its new
  /// size, or will not do so soon.
  std::optional<CommandFailure> see_placed();
  /// As it was at the end.
  const SlurmJob& found() const { return found_; }
  double seconds() const { return seconds_; }

 private:
  using Clock = Steering::Clock;
  using Failure = std::optional<CommandFailure>;
  Failure look(const SlurmJob& now);
  Failure look_for_never(const SlurmJob& now);
  CommandFailure put_back(const SlurmJob& now);
  void say_why(const SlurmJob& now);
  void hurry(const SlurmJob& now);

  const Steering& steering_;
  const SlurmJob& job_;
  std::uint32_t least_restarts_;
  std::uint32_t gpus_;
  std::optional<SizeChange> change_;
  Clock::time_point begun_;
  bool running_ = false;
  bool pulled_ = false;
  std::string said_;  ///< Slurm's reason that was last told
  std::time_t next_look_ = 0;
  int looks_ = 0;
  int nevers_ = 0;
  std::time_t last_never_ = 0;
  SlurmJob found_;
  double seconds_ = 0;
};

/// Whether Slurm's reason says that the job can't run as it is, whatever becomes free.
bool never_runs(const std::string& reason);
/// Why a job waits, in words with Slurm's own at their end: "for GPUs (Resources)".
std::string wait_text(const SlurmJob& job);

}  // namespace bellows
