// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "launcher/steer/steering.h"

namespace bellows {

/// Stops a running job at a checkpoint through its launcher. Whatever happens to the caller after
/// that, the launcher continues on its own.
class JobStop {
 public:
  /// `demand`: the launcher's command, a JSON object; `then`: what the launcher does by itself, as
  /// in "and then moves to 4 GPUs".
  JobStop(const Steering& steering, const SlurmJob& job, std::string demand, std::string then)
      : steering_(steering), job_(job), demand_(std::move(demand)), then_(std::move(then)) {}
  ~JobStop();
  JobStop(const JobStop&) = delete;
  JobStop& operator=(const JobStop&) = delete;

  std::optional<CommandFailure> run();
  /// The step it stopped at; none: there is no checkpoint yet.
  const std::optional<std::uint64_t>& step() const { return step_; }
  /// The batch that the launcher has recorded; none: as before.
  const std::optional<std::uint64_t>& batch() const { return batch_; }
  double seconds() const { return seconds_; }

 private:
  using Clock = Steering::Clock;
  using Failure = std::optional<CommandFailure>;

  Failure ask(std::string& not_yet);
  Failure converse(std::string& not_yet);
  /// True: the conversation is over, with this outcome.
  bool handle(const std::string& line, std::string& not_yet, Failure& outcome);
  Failure went_away(std::string& not_yet);
  /// Of a step that has nothing more to hear: its own, srun's, or -1 when it lingers.
  int exit_code();
  /// The first that srun or the step wrote on standard error, in brackets; empty: nothing.
  std::string complaint();

  const Steering& steering_;
  const SlurmJob& job_;
  std::string demand_;
  std::string then_;
  std::unique_ptr<LauncherLine> line_;
  Clock::time_point started_;
  bool stopping_ = false;
  std::optional<std::uint64_t> step_;
  std::optional<std::uint64_t> batch_;
  double seconds_ = 0;
};

}  // namespace bellows
