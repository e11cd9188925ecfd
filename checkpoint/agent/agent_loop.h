// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/agent/agent.h"
#include "checkpoint/agent/agent_parts.h"
#include "checkpoint/agent/farewell.h"
#include "checkpoint/agent/restore_desk.h"
#include "checkpoint/protocol/protocol.h"

namespace bellows {

/// A shard that was written, and how it still lies in memory.
struct WrittenShard {
  ShardFile file;
  std::shared_ptr<const ShardCopy> copy;
};

/// The agent without what tells it what to do: brings commands and ranks' messages to those of its
/// parts that they are for. One thread calls everything; work that blocks is done by its own
/// threads.
class AgentLoop {
 public:
  /// `emit` gets the events, with the node filled in.
  AgentLoop(std::string node, Fd listener, FileOps& ops, std::unique_ptr<Completions> completions,
            int gate_limit_ms, Voice::Emit emit);
  ~AgentLoop();

  void handle(const Command& command);
  /// What poll must wait for, and what to do with the answer.
  std::vector<int> descriptors() const;
  void serve(const std::set<int>& readable);
  /// Drops a gate that nobody decided; call at least every second.
  void tick();
  Event progress() const;
  /// A signal that Slurm sends to all steps has come: ranks that get it must not die of it.
  void announce();

  /// Whether a rank was ever accepted, and how many sockets and jobs there are now.
  bool had_ranks() const { return had_ranks_; }
  bool idle() const { return parts_.links.empty() && parts_.jobs.count() == 0; }
  /// Accept no rank any more: a new program needs a new agent.
  void close_door() { door_closed_ = true; }
  bool any_left() const { return farewell_.any_left(); }

 private:
  // agent_loop.cc: commands
  void obey(const Command& command);
  void begin_session(const Command& command);
  void end_session();
  void set_gate(const Command& command);
  void set_stop(const Command& command);

  // agent_ranks.cc: ranks' messages
  void read_rank(RankLink& link);
  void take_message(RankLink& link, const RankMessage& message);
  void refuse_message(RankLink& link, const wire::Head& head);
  void take_hello(RankLink& link);
  void welcome(RankLink& link);
  void take_layout(RankLink& link, const RankMessage& message);

  // agent_saves.cc: saves
  Event event_of_save(Event::Kind kind, const RankLink& link, std::uint64_t step) const;
  void say_save_error(SaveState& save, const RankLink& link, const Error& error);
  void begin_save(RankLink& link, std::uint64_t step);
  void give_buffer(RankLink& link);
  void reserve_first(RankLink& link);
  void make_first(RankLink& link);
  void reserve_second(RankLink& link);
  void reserve(RankLink& link, std::size_t index, std::uint64_t bytes);
  void take_reserved(std::uint64_t link_id, std::size_t index, const MadeMemory& memory);
  void take_buffer(std::uint64_t link_id, std::uint64_t step, const MadeMemory& memory);
  void take_save(RankLink& link, std::uint64_t step, bool copied);
  void write_next(RankLink& link);
  void take_shard(std::uint64_t link_id, std::uint64_t step, const Result<WrittenShard>& written);
  void set_committed(const Command& command);
  void set_failed(const Command& command);
  void call_off(RankLink& link, SaveState& save, const Error& error);
  void remove_shard_then_fail(RankLink& link, std::uint64_t step, const Error& error);
  void fail_save(RankLink& link, std::uint64_t step, const Error& error);
  std::string shard_path(const RankLink& link, std::uint64_t step) const;

  AgentParts parts_;
  Farewell farewell_{parts_};
  RestoreDesk restores_{parts_, farewell_};
  std::chrono::milliseconds gate_limit_;
  bool had_ranks_ = false;
  bool door_closed_ = false;
  std::optional<std::chrono::steady_clock::time_point> announced_;  ///< last
};

}  // namespace bellows
