// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "launcher/steering.h"

namespace bellows {

/// Watches a queued job until it runs, and sees to it that this is soon: a requeued job would wait
/// for the life of a credential, and nothing makes Slurm look at a job whose start time has come.
class JobStart {
 public:
  /// `least_restarts`: the run that is waited for has as many or more; `what`: "for 4 GPUs".
  JobStart(const Steering& steering, const SlurmJob& job, std::uint32_t least_restarts,
           std::string what)
      : steering_(steering), job_(job), least_restarts_(least_restarts), what_(std::move(what)) {}

  /// To be called at once after what put the job into the queue.
  std::optional<CommandFailure> run();
  /// As it was at the end.
  const SlurmJob& found() const { return found_; }
  double seconds() const { return seconds_; }

 private:
  using Clock = Steering::Clock;
  std::optional<CommandFailure> look(const SlurmJob& now);
  void hurry(const SlurmJob& now);

  const Steering& steering_;
  const SlurmJob& job_;
  std::uint32_t least_restarts_;
  std::string what_;
  Clock::time_point begun_;
  bool running_ = false;
  bool pulled_ = false;
  bool said_waiting_ = false;
  std::time_t next_look_ = 0;
  int looks_ = 0;
  SlurmJob found_;
  double seconds_ = 0;
};

}  // namespace bellows
