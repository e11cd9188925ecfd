// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/protocol/protocol.h"

namespace bellows {

/// Decides from the agents' events when a step is complete and when it has failed. Used by the
/// launcher for all nodes and by a standalone agent for itself. Does no I/O; one thread at a time.
///
/// Several steps may be on their way at once. Each rank gives its steps in ascending order, so a
/// rank that gave a later step has skipped every pending one without its part. Steps are committed
/// in ascending order, one after the other.
class Coordinator {
 public:
  explicit Coordinator(std::uint32_t world) : world_(world) {}

  /// The commands an event calls for, to be sent to all agents in order: `commit` (only the leader
  /// obeys) when the last rank's shard of a step is there, `committed` when the leader has
  /// committed it, `failed` when it can't become complete. Other events give none.
  std::vector<Command> handle(const Event::Body& event);

  /// Steps with a part of some rank that are neither committed nor failed.
  std::vector<std::uint64_t> pending() const;
  bool is_pending(std::uint64_t step) const { return pending_.contains(step); }

  /// The newest step that was committed through this coordinator.
  std::optional<std::uint64_t> committed() const { return committed_; }

 private:
  struct Pending {
    std::map<std::uint32_t, ShardFile> shards;
    bool committing = false;
  };

  bool is_stale(std::uint64_t step, std::uint64_t last_heard) const;
  std::vector<Command> take(const event::Shard& shard);
  std::vector<Command> take(const event::SaveError& failed);
  std::vector<Command> take(const event::Rank& rank);
  std::vector<Command> take(const event::Committed& committed);
  std::vector<Command> take(const event::CommandFailed& failed);
  /// Other events do not concern it.
  std::vector<Command> take(const auto&) { return {}; }
  std::vector<Command> fail(std::uint64_t step, const Error& why);
  std::vector<Command> commit_next();
  std::vector<Command> check_ranks();
  std::optional<std::string> skipped() const;

  std::uint32_t world_;
  std::map<std::uint64_t, Pending> pending_;
  std::map<std::uint32_t, event::Rank::State> gone_;  ///< rank -> how it left
  std::optional<std::uint64_t> committed_;
  std::uint64_t failures_ = 0;
  std::map<std::uint64_t, std::uint64_t> failed_;  ///< step -> number of its last failure
};

/// Finds the step at which all ranks of a job stop. Does no I/O; one thread at a time.
///
/// A gate is set on every agent; each answers with the newest step one of its ranks had published.
/// If all of them are below the gate, no rank can pass it any more, and the ranks stop there. Else
/// the gate is moved ahead of the newest, each time twice as far, so that fast ranks are caught
/// too.
class StopDecision {
 public:
  /// `agents`: how many must answer. `newest`: the newest step heard of, from progress events.
  /// `margin`: how many steps ahead of it the first gate is, at least 1.
  StopDecision(std::uint32_t agents, std::optional<std::uint64_t> newest, std::uint64_t margin);

  /// The first command to send: a gate.
  command::SetGate begin() { return gate(); }
  /// The next command, when all agents have answered the last gate: another gate, or the stop.
  std::vector<Command> handle(const std::string& node, const event::Gated& gated);
  /// The step, once decided. Programs that ask only every k steps stop at the first they ask about.
  std::optional<std::uint64_t> step() const { return decided_; }

 private:
  command::SetGate gate();

  std::uint32_t agents_;
  std::uint64_t margin_;
  std::uint64_t gate_;
  std::uint64_t id_ = 0;
  std::uint64_t most_ = 0;
  std::set<std::string> answered_;
  std::optional<std::uint64_t> decided_;
};

}  // namespace bellows
