// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "checkpoint/protocol/rendezvous.h"
#include "checkpoint/store/store.h"
#include "checkpoint/store/store_place.h"
#include "common/access.h"
#include "common/result.h"

namespace bellows {

/// What a launcher tells its agents. Each has its name on the wire. What is optional there has a
/// default here.
namespace command {

/// An attempt begins.
struct Hello {
  static constexpr std::string_view kName = "hello";
  std::string dir{};
  std::string base{};             ///< the part of `dir` that is trusted; empty: all of it
  Access access = Access::owner;  ///< optional
  std::string attempt{};          ///< [A-Za-z0-9._-]+
  /// The attempt whose directory it takes, empty for nobody's; none: whoever owns it then.
  std::optional<std::string> replaces{};
  std::string leader{};  ///< the node that commits
  std::uint32_t world = 0;
  std::uint32_t keep = 3;                                     ///< optional
  std::uint64_t keep_every = 0;                               ///< optional
  std::map<std::string, std::vector<std::uint32_t>> ranks{};  ///< node -> its ranks

  StorePlace place() const { return {dir, base.empty() ? dir : base}; }
};
/// Answered by event::Found.
struct Find {
  static constexpr std::string_view kName = "find";
  Search search{.whole = false, .bad = {}};
};
/// Answered by event::Ready.
struct Restore {
  static constexpr std::string_view kName = "restore";
  std::optional<std::uint64_t> step{};  ///< none: begin at the start
  bool rendezvous = false;              ///< the leader shall find a place where rank 0 can listen
  std::optional<Error> error{};         ///< why no step can be offered
};
/// Answered by event::Gated, unless it releases.
struct SetGate {
  static constexpr std::string_view kName = "gate";
  std::optional<std::uint64_t> step{};  ///< none: release
  std::uint64_t id = 0;
};
/// Answered by event::StopSet.
struct SetStop {
  static constexpr std::string_view kName = "stop";
  std::uint64_t step = 0;
};
/// Only the leader obeys. Answered by event::Committed.
struct Commit {
  static constexpr std::string_view kName = "commit";
  std::uint64_t step = 0;
  std::vector<ShardFile> shards{};
};
struct Committed {
  static constexpr std::string_view kName = "committed";
  std::uint64_t step = 0;
};
struct Failed {
  static constexpr std::string_view kName = "failed";
  std::uint64_t step = 0;
  std::uint64_t id = 0;  ///< the number of the failure, counted from 1; optional
  Error error{ErrorKind::io, {}};
};
/// Answered by event::Progress.
struct Query {
  static constexpr std::string_view kName = "query";
  std::uint64_t id = 0;  ///< optional
};
struct Quit {
  static constexpr std::string_view kName = "quit";
};

}  // namespace command

/// A line from the launcher to its agents.
struct Command {
  using Body = std::variant<command::Hello, command::Find, command::Restore, command::SetGate,
                            command::SetStop, command::Commit, command::Committed, command::Failed,
                            command::Query, command::Quit>;
  Body body;
  std::string node{};  ///< only this node's agent obeys; empty: all
};

/// What an agent tells the launcher. Each has its name on the wire. What is optional there has a
/// default here.
namespace event {

/// The agent runs.
struct Hello {
  static constexpr std::string_view kName = "hello";
  std::int64_t pid = 0;  ///< optional
};
struct Found {
  static constexpr std::string_view kName = "found";
  std::optional<std::uint64_t> step{};  ///< none: there is none
  std::vector<SkippedStep> skipped{};
};
/// The step to restore is known.
struct Ready {
  static constexpr std::string_view kName = "ready";
  std::optional<Rendezvous> rendezvous{};  ///< where it was asked for
};
struct Gated {
  static constexpr std::string_view kName = "gated";
  std::uint64_t id = 0;
  std::optional<std::uint64_t> max_step{};  ///< none: no rank has published a step
};
struct StopSet {
  static constexpr std::string_view kName = "stop_set";
  std::uint64_t step = 0;
};
struct Committed {
  static constexpr std::string_view kName = "committed";
  std::uint64_t step = 0;
};
struct CommandFailed {
  static constexpr std::string_view kName = "error";
  std::string cmd{};  ///< the command's name, or "retention"; empty: none that is known
  std::optional<std::uint64_t> step{};
  Error error{ErrorKind::io, {}};
};
/// Said every second, and to answer a query.
struct Progress {
  static constexpr std::string_view kName = "progress";
  /// What Slurm sent to this step.
  enum class Signal { none, term, usr1 };

  std::optional<std::uint64_t> max_step{};  ///< none: no rank has published a step
  std::vector<std::uint32_t> ranks{};       ///< those that are connected
  /// The newest step that each of `ranks` has published; optional.
  std::vector<std::optional<std::uint64_t>> steps{};
  std::uint32_t stopped = 0;    ///< ranks that were told to stop
  std::uint32_t finished = 0;   ///< ranks that left with training complete
  std::uint32_t unwritten = 0;  ///< parts of steps that this node has yet to write
  bool busy = false;            ///< the agent writes, reads, commits or makes room; optional
  /// What ranks say of the training, in samples; 0: nothing.
  std::uint64_t batch = 0;
  std::uint64_t noise_scale = 0;
  Signal signal = Signal::none;
  std::uint64_t id = 0;  ///< of the query it answers
};
/// A rank's part of a step is stored.
struct Shard {
  static constexpr std::string_view kName = "shard";
  ShardFile file{};
  std::uint64_t step = 0;
  std::uint64_t id = 0;       ///< the last failure the agent had heard of
  std::uint64_t took_ms = 0;  ///< from the rank's call on; optional
};
struct SaveError {
  static constexpr std::string_view kName = "save_error";
  std::uint32_t rank = 0;
  std::uint64_t step = 0;
  Error error{ErrorKind::io, {}};
  std::uint64_t id = 0;  ///< the last failure the agent had heard of
};
/// A rank has come or left.
struct Rank {
  static constexpr std::string_view kName = "rank";
  enum class State {
    joined,
    finished,
    stopped,
    exited,  ///< with status 0, but without leaving its agent first
    lost
  };

  std::uint32_t rank = 0;
  State state = State::joined;
};
/// The step that was offered can't be read; the rank waits for another.
struct RestoreError {
  static constexpr std::string_view kName = "restore_error";
  std::uint32_t rank = 0;
  std::uint64_t step = 0;
  Error error{ErrorKind::io, {}};
};
/// A rank has been given the step; ranks of a node that want the same count it once.
struct Restored {
  static constexpr std::string_view kName = "restored";
  std::uint32_t rank = 0;
  std::uint64_t step = 0;
  std::uint64_t from_memory = 0;  ///< bytes of shards that the agent's memory held
  std::uint64_t from_store = 0;   ///< bytes of shards that were read from files
};

}  // namespace event

/// A line from an agent to the launcher.
struct Event {
  using Body = std::variant<event::Hello, event::Found, event::Ready, event::Gated, event::StopSet,
                            event::Committed, event::CommandFailed, event::Progress, event::Shard,
                            event::SaveError, event::Rank, event::RestoreError, event::Restored>;
  Body body;
  std::string node{};  ///< whose agent says it
};

/// invalid: says what is wrong with the line. Unknown keys are ignored, unknown names are not.
Result<Command> parse_command(std::string_view line);
Result<Event> parse_event(std::string_view line);

/// One line of JSON without the newline; parse_ gives the value back.
std::string to_line(const Command& command);
std::string to_line(const Event& event);

}  // namespace bellows
