// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/child.h"
#include "slurm/interface.h"

namespace bellows {

/// How a program that does not use libbellows is made to write its own checkpoint. A value.
struct OwnCheckpoint {
  int signal = 0;                     ///< every rank gets it, saves and exits; 0: none
  std::string command;                ///< run on the batch host; empty: none
  std::uint32_t grace = 120;          ///< seconds for either
  std::optional<int> stopped_status;  ///< of ranks that stopped; none: 0, or any other

  bool possible() const { return signal != 0 || !command.empty(); }
  /// What happens at a stop, for a person.
  std::string describe() const;
  /// A sentence when a preemption leaves the program less time than it may take; else empty.
  std::string complaint(const SlurmGrace& grace) const;
};

/// "USR1", "SIGUSR1" or "10". Nothing: no signal that a program could act on.
std::optional<int> parse_signal(const std::string& text);

/// What is known while such a program stops.
struct OwnStopFacts {
  std::optional<ChildExit> ranks;    ///< how their step ended; none: they run
  std::optional<ChildExit> command;  ///< the same of the command
  bool told_finished = false;        ///< the program made its file that says so
  bool out_of_time = false;
  bool may_refuse = false;  ///< whoever wants the stop does not depend on it
  std::string lost;  ///< why the end of the ranks says nothing about the program; empty: it does
};

enum class OwnStopEnd {
  waiting,
  saved,     ///< end what still runs, and requeue
  unsaved,   ///< the same, though nothing shows that a checkpoint was written
  finished,  ///< the job is complete
  refused    ///< no checkpoint, but the ranks are untouched and continue
};

/// A rank that ends well after the signal has stopped, since that is how programs of this kind do
/// it; that it has finished is told by the file or, with stopped_status, by status 0. A program
/// that finishes unnoticed in this very moment is started once more and ends at once.
OwnStopEnd judge_own_stop(const OwnCheckpoint& how, const OwnStopFacts& facts);

}  // namespace bellows
