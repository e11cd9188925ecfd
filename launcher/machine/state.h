// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "checkpoint/protocol/rendezvous.h"
#include "launcher/machine/own_stop.h"

namespace bellows {

/// What a run waits for. Each state holds what only it needs, and `until`, when it acts by itself;
/// those without `until` wait for the answer to an action that is always given.
namespace state {

using Time = std::chrono::steady_clock::time_point;

/// What follows once both steps have ended.
enum class Next { restart, stop, complete, fail, leave };

/// To know whose directory it is.
struct Looking {};
/// For every agent's hello.
struct Greeting {
  Time until;
  std::set<std::string> awaited;  ///< nodes
};
/// For the newest checkpoint that verifies.
struct Finding {
  Time until;
};
/// For every agent to offer it.
struct Restoring {
  Time until;
  std::set<std::string> awaited;  ///< nodes
  std::optional<Rendezvous> rendezvous{};
};
/// Ranks are at work, or have ended by a fault that Slurm is asked about.
struct Running {
  Time until;
  bool late = false;  ///< whether Slurm has made their step is being asked
};
/// For a program without libbellows to write its own checkpoint.
struct Saving {
  Time until;
  OwnStop own;
  bool asked = false;  ///< for the step that gets the signal
};
/// The ranks have ended well: have they finished, stopped, or died without a word?
struct Judging {
  Time until;
};
/// Ranks have ended: what they gave to the agents becomes checkpoints.
struct Draining {
  Time until;
  Next next;
};
/// For both steps to end.
struct Clearing {
  enum class Asked { nothing, whether_steps_stay, what_to_kill };
  Time until;
  Next next;
  int escalation = 0;
  Asked asked = Asked::nothing;
};
/// To know how many runs before this one came to nothing.
struct Counting {};
/// A pause before the next attempt.
struct Waiting {
  Time until;
};
/// For whoever asked for the stop to requeue the job.
struct HandedOver {
  Time until;
};
/// For the requeue that this run carries out.
struct Requeueing {};
/// For slurmctld to clear the nodes of a run that it lost.
struct Forgotten {
  Time until;
};
struct Over {
  int status;
};

}  // namespace state

using State = std::variant<state::Looking, state::Greeting, state::Finding, state::Restoring,
                           state::Running, state::Saving, state::Judging, state::Draining,
                           state::Clearing, state::Counting, state::Waiting, state::HandedOver,
                           state::Requeueing, state::Forgotten, state::Over>;

/// Where to go; nothing: stay.
using Move = std::optional<State>;

}  // namespace bellows
