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
#include "checkpoint/agent/rank_message.h"
#include "checkpoint/agent/restore_desk.h"
#include "checkpoint/protocol/protocol.h"

namespace bellows {

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
  event::Progress progress() const;
  /// A signal that Slurm sends to all steps has come: ranks that get it must not die of it.
  void announce();

  /// Whether a rank was ever accepted, and how many sockets and jobs there are now.
  bool had_ranks() const { return had_ranks_; }
  bool idle() const { return parts_.links.empty() && parts_.jobs.count() == 0; }
  /// Accepts no rank any more once one has left: a new program needs a new agent.
  void serve_one_program() { one_program_ = true; }
  bool any_left() const { return farewell_.any_left(); }

 private:
  // agent_loop.cc: commands
  void obey(const Command& command);
  void obey(const command::Hello& hello);
  void obey(const command::Find& find) { parts_.store.find(find.search); }
  void obey(const command::Restore& restore) { restores_.offer(restore); }
  void obey(const command::SetGate& gate);
  void obey(const command::SetStop& stop);
  void obey(const command::Commit& commit);
  void obey(const command::Committed& committed);
  void obey(const command::Failed& failed);
  void obey(const command::Query& query);
  /// For the agent itself.
  void obey(const command::Quit&) {}
  void end_session();

  // agent_ranks.cc: ranks' messages
  void read_rank(RankLink& link);
  void take_message(RankLink& link, const RankMessage& message);
  /// There is no memory for it.
  void refuse_message(RankLink& link, const RankMessage& message);
  /// invalid: the rank has broken the protocol.
  Status take(RankLink& link, const request::Hello& hello);
  Status take(RankLink& link, const request::Layout& layout);
  Status take(RankLink& link, const request::Array& array);
  Status take(RankLink& link, const request::SaveBegin& begin);
  Status take(RankLink& link, const request::SaveReady& ready);
  Status take(RankLink& link, const request::Restore& restore);
  Status take(RankLink& link, const request::Taken& taken);
  Status take(RankLink& link, const request::Reserve&);
  Status take(RankLink& link, const request::Bye& bye);
  void let_in(RankLink& link);
  void welcome(RankLink& link);

  AgentParts parts_;
  Farewell farewell_{parts_};
  RestoreDesk restores_{parts_, farewell_};
  std::chrono::milliseconds gate_limit_;
  bool had_ranks_ = false;
  bool one_program_ = false;
  std::optional<std::chrono::steady_clock::time_point> announced_;  ///< last
};

}  // namespace bellows
