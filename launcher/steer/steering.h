// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "launcher/base/exit_status.h"
#include "launcher/steer/launcher_line.h"
#include "slurm/interface.h"
#include "slurm/requeue.h"

namespace bellows {

/// Why a command could not do what it was asked.
struct CommandFailure {
  int exit_status = kFailed;
  std::string text;  ///< what went wrong and what state the job is in
};

/// What the commands that steer a job from outside share: resize, halt and resume. All that they
/// know of the world comes through here, so that a test can have a world of its own.
struct Steering {
  using Clock = std::chrono::steady_clock;

  Slurm& slurm;
  CallLauncher call_launcher;
  RoadTime time;                                ///< theirs, and that of the deadline
  std::function<void(const std::string&)> say;  ///< gets progress lines
  std::function<bool()> interrupted;            ///< asked between the parts
  Clock::time_point deadline;                   ///< of the whole
  /// Told what state things are in from now on, and the exit status if that is all that comes of
  /// it.
  std::function<void(int, const std::string&)> standing = [](int, const std::string&) {};

  bool out_of_time() const { return time.now() >= deadline; }
  /// For an end before the goal, with what state things are in.
  CommandFailure stopped_waiting(const std::string& state) const;
};

/// Whether the caller may steer the job, and Slurm lets anybody do so; `verb` as in "can halt it".
std::optional<CommandFailure> check_steerable(const SlurmJob& job, const std::string& verb);

/// Root acts with the owner's rights: it becomes the job's owner permanently.
std::optional<CommandFailure> become_owner(const SlurmJob& job);

/// "job 7 WHY; nothing was changed"
CommandFailure refusal(const SlurmJob& job, const std::string& why);

/// Of an error of the first question about a job.
CommandFailure not_found_failure(const Error& error);

}  // namespace bellows
