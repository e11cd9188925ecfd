// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "common/child.h"
#include "launcher/machine/own_checkpoint.h"

namespace bellows {

/// A stop of a program that does not use libbellows, from its beginning until the program has saved
/// or its time is over.
class OwnStop {
 public:
  using Clock = std::chrono::steady_clock;

  /// `may_refuse`: whoever wants the stop does not depend on it.
  OwnStop(const OwnCheckpoint& how, bool may_refuse, Clock::time_point now);

  /// The ranks have not received their signal yet.
  bool must_signal() const;
  void note_signalled() { signalled_ = true; }
  /// The program has all its time from `now` on.
  void begin_time(Clock::time_point now);
  /// Time passed in which nobody ran.
  void excuse(Clock::duration gap) { until_ += gap; }

  void note_ranks(const ChildExit& exit) { facts_.ranks = exit; }
  /// Something other than the program ended the ranks.
  void note_lost(const std::string& cause) { facts_.lost = cause; }
  /// How the command ended that makes the program save, if there is one.
  void note_command(const ChildExit& exit) { facts_.command = exit; }
  /// The program made its file that says so.
  void note_finished(bool told) { facts_.told_finished |= told; }
  OwnStopEnd judge(Clock::time_point now);

  /// Why there is no checkpoint.
  std::string trouble() const;

 private:
  OwnCheckpoint how_;
  OwnStopFacts facts_;
  Clock::time_point until_;
  bool signalled_ = false;
};

}  // namespace bellows
