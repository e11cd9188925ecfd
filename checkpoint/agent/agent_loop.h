// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "checkpoint/agent/agent.h"
#include "checkpoint/agent/gate.h"
#include "checkpoint/agent/jobs.h"
#include "checkpoint/agent/node_restore.h"
#include "checkpoint/agent/rank_link.h"
#include "checkpoint/agent/store_desk.h"
#include "checkpoint/agent/voice.h"
#include "checkpoint/protocol/protocol.h"
#include "checkpoint/store/store_writer.h"
#include "checkpoint/system/worker.h"

namespace bellows {

/// One attempt, from its hello to the next.
struct Session {
  explicit Session(std::chrono::milliseconds gate_limit) : gate(gate_limit) {}

  Command hello;
  bool leader = false;
  std::set<std::uint32_t> ranks;      ///< this node's
  std::uint64_t memory_for_rank = 0;  ///< what the buffers of one rank may take
  std::shared_ptr<StoreWriter> writer;

  bool restore_known = false;
  std::optional<std::uint64_t> restore_step;
  std::optional<Error> no_step;  ///< why none is offered, though the directory holds some
  std::map<std::uint64_t, std::shared_ptr<NodeRestore>> restores;  ///< the first of each rank, ...
  std::optional<ReservedPort> port;                                ///< kept for rank 0

  Gate gate;
  std::uint64_t failures = 0;           ///< the number of the last failed step heard of
  std::optional<std::uint64_t> newest;  ///< of ranks that have left
  std::uint32_t stopped = 0;            ///< ranks that left without having finished
  std::uint32_t finished = 0;

  std::size_t ranks_here() const { return ranks.empty() ? hello.world : ranks.size(); }
};

/// A shard that was written, and how it still lies in memory.
struct WrittenShard {
  ShardFile file;
  std::shared_ptr<const ShardCopy> copy;
};

/// What a rank restored: its arrays, and where they were read.
struct RestoredArrays {
  std::shared_ptr<SharedMemory> memory;
  BlockOffers offers;         ///< what the rank is to read itself
  std::uint64_t from_memory;  ///< bytes
  std::uint64_t from_store;
};

/// The agent without what tells it what to do: serves ranks, obeys commands, says events.
/// One thread calls everything; work that blocks is done by its own threads.
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
  bool idle() const { return links_.empty() && jobs_.count() == 0; }
  /// Accept no rank any more: a new program needs a new agent.
  void close_door() { door_closed_ = true; }
  bool any_left() const { return any_left_; }

 private:
  using Links = std::map<int, std::unique_ptr<RankLink>>;

  // agent_loop.cc: commands
  void obey(const Command& command);
  void begin_session(const Command& command);
  void end_session();
  void set_restore(const Command& command);
  void set_gate(const Command& command);
  void set_stop(const Command& command);
  std::optional<std::uint64_t> newest_step_of_ranks() const;

  // agent_ranks.cc: ranks
  void accept_rank();
  void read_rank(RankLink& link);
  void take_message(RankLink& link, const RankMessage& message);
  void refuse_message(RankLink& link, const wire::Head& head);
  void take_hello(RankLink& link);
  std::optional<std::string> refusal(const RankLink& link) const;
  void take_layout(RankLink& link, const RankMessage& message);
  std::shared_ptr<NodeRestore> restore_for(const RankLink& link, std::uint64_t step);
  void begin_restore(RankLink& link);
  void take_restored(std::uint64_t link_id, std::uint64_t step,
                     const Result<RestoredArrays>& arrays);
  void give_up(RankLink& link);
  void take_taken(RankLink& link, bool all);
  void say_restored(RankLink& link);
  void take_bye(RankLink& link, bool finished);
  void say_goodbye(RankLink& link, bool finished);
  void protocol_error(RankLink& link, const Error& error);
  void hang_up(RankLink& link);
  void bury();
  void keep_copies(RankLink& link);
  ShardCopies copies_of(std::uint64_t step) const;
  RankLink* find_link(std::uint64_t id);

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

  Voice voice_;
  Fd listener_;
  FileOps& ops_;
  Jobs jobs_;
  std::chrono::milliseconds gate_limit_;
  /// All memory for ranks' arrays ends there.
  std::shared_ptr<MemoryBin> bin_ = std::make_shared<MemoryBin>();
  std::unique_ptr<Session> session_;
  Links links_;
  KeptCopies kept_;
  std::uint64_t next_link_ = 1;
  bool had_ranks_ = false;
  bool any_left_ = false;
  bool door_closed_ = false;
  bool no_descriptors_ = false;  ///< for one more rank: not before the next look at the others
  std::optional<std::chrono::steady_clock::time_point> announced_;  ///< last
  // Last: their threads use what is above, and are joined first.
  StoreDesk store_;
  Workers shards_;  ///< several: writing, restoring
};

}  // namespace bellows
