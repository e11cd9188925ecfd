// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/protocol/rendezvous.h"
#include "checkpoint/store/store.h"
#include "checkpoint/store/store_place.h"
#include "common/access.h"
#include "common/result.h"

namespace bellows {

/// A line from the launcher to its agents. Fields that a kind does not name are unused.
struct Command {
  enum class Kind { hello, find, restore, gate, stop, commit, committed, failed, query, quit };
  Kind kind = Kind::query;
  std::string node;  ///< only this node's agent obeys; empty: all

  std::string dir;                ///< hello
  std::string base;               ///< hello: the part of `dir` that is trusted; optional: all of it
  Access access = Access::owner;  ///< hello; optional
  std::string attempt;            ///< hello: [A-Za-z0-9._-]+
  /// hello: the attempt whose directory it takes, empty for nobody's; none: whoever owns it then
  std::optional<std::string> replaces;
  std::string leader;                                       ///< hello: the node that commits
  std::uint32_t world = 0;                                  ///< hello
  std::uint32_t keep = 3;                                   ///< hello
  std::uint64_t keep_every = 0;                             ///< hello; optional
  std::map<std::string, std::vector<std::uint32_t>> ranks;  ///< hello: node -> its ranks
  std::uint64_t id = 0;  ///< gate; query; failed: the number of the failure, counted from 1
  /// restore (none: begin at the start), gate (none: release), stop, commit, committed, failed
  std::optional<std::uint64_t> step;
  bool rendezvous = false;  ///< restore: the leader shall find a place where rank 0 can listen
  std::vector<ShardFile> shards;             ///< commit
  Search search{.whole = false, .bad = {}};  ///< find
  std::string error;                     ///< failed; restore: why no step can be offered, optional
  ErrorKind error_kind = ErrorKind::io;  ///< failed, restore; optional

  StorePlace place() const { return {dir, base.empty() ? dir : base}; }
};

/// A line from an agent to the launcher.
struct Event {
  enum class Kind {
    hello,       ///< the agent runs: pid
    found,       ///< step, skipped
    ready,       ///< restore is set; rendezvous, where it was asked for
    gated,       ///< id, max_step
    stop_set,    ///< step
    committed,   ///< step
    error,       ///< a command failed: cmd, step, error
    progress,    ///< max_step, ranks, steps, stopped, finished, unwritten, busy, signal
    shard,       ///< rank, step, shard, took_ms
    save_error,  ///< rank, step, error
    /// rank, state: joined, finished, stopped, exited (with status 0, but without leaving its agent
    /// first) or lost
    rank,
    /// rank, step, error: the step that was offered can't be read; the rank waits for another
    restore_error,
    /// rank, step, from_memory, from_store: a rank has been given the step; ranks of a node that
    /// want the same count it once
    restored
  };
  Kind kind = Kind::hello;
  std::string node;

  std::optional<Rendezvous> rendezvous;
  std::optional<std::uint64_t> step;
  std::vector<SkippedStep> skipped;
  /// gated; progress: of the query it answers; shard, save_error: the last failure the agent had
  /// heard of
  std::uint64_t id = 0;
  std::optional<std::uint64_t> max_step;  ///< none: no rank has published a step
  std::uint32_t rank = 0;
  std::string state;
  ShardFile shard;
  std::vector<std::uint32_t> ranks;  ///< progress: connected ranks
  /// progress: the newest step that each of `ranks` has published; optional
  std::vector<std::optional<std::uint64_t>> steps;
  std::uint32_t stopped = 0;    ///< progress: ranks that were told to stop
  std::uint32_t finished = 0;   ///< progress: ranks that left with training complete
  std::uint32_t unwritten = 0;  ///< progress: parts of steps that this node has yet to write
  bool busy = false;   ///< progress: the agent writes, reads, commits or makes room; optional
  std::string signal;  ///< progress: TERM or USR1, which Slurm sent to this step
  std::uint64_t took_ms = 0;      ///< shard: from the rank's call on; optional
  std::uint64_t from_memory = 0;  ///< restored: bytes of shards that the agent's memory held
  std::uint64_t from_store = 0;   ///< restored: bytes of shards that were read from files
  std::int64_t pid = 0;
  std::string cmd;
  std::string error;
  ErrorKind error_kind = ErrorKind::io;  ///< error, save_error, restore_error; optional
};

/// invalid: says what is wrong with the line. Unknown keys are ignored, unknown kinds are not.
Result<Command> parse_command(std::string_view line);
Result<Event> parse_event(std::string_view line);

/// One line of JSON without the newline; parse_ gives the value back.
std::string to_line(const Command& command);
std::string to_line(const Event& event);

}  // namespace bellows
