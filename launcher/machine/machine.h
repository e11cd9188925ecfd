// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "launcher/machine/action.h"
#include "launcher/machine/input.h"
#include "launcher/machine/run.h"
#include "launcher/machine/state.h"

namespace bellows {

/// `bellows run` as a pure machine: starts agents and ranks, commits checkpoints, stops on demand,
/// starts again after faults and says how the run ended. Inputs go in and actions come out; it does
/// no I/O and reads no clock. Whoever drives it carries out all actions of an input, in order,
/// before the next input; the answer to an action is the next input, except for other inputs that
/// the same actions caused. README.md draws the states.
class RunMachine {
 public:
  using Clock = std::chrono::steady_clock;

  /// What is wanted while the state lasts.
  struct Wanted {
    bool job = false;        ///< JobLook, as soon as slurmctld answers
    bool owner = false;      ///< Owner, every few seconds
    bool ranks_end = false;  ///< RanksEnded after RanksGone, which alone tells enough otherwise
    Clock::time_point tick;
  };

  /// `on_disk`: the newest committed step, for clients that ask before the agents have looked.
  RunMachine(RunRules rules, SlurmJob job, RankLayout layout, std::optional<std::uint64_t> on_disk);

  void begin(Clock::time_point now);
  void take(const Input& input, Clock::time_point now);
  /// What is to be done, once.
  std::vector<Action> actions();

  Wanted wanted() const;
  /// The exit status for the batch script, once the run is over.
  std::optional<int> status() const;
  const State& state() const { return state_; }
  const Run& run() const { return run_; }

 private:
  Run run_;
  State state_;
};

}  // namespace bellows
