// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/contract.h"
#include "launcher/ranks/rank_layout.h"
#include "launcher/slurm/node_watch.h"
#include "slurm/interface.h"

namespace bellows {

/// What a run knows of itself when it looks at its nodes.
struct NodeFacts {
  const SlurmJob& job;
  const RankLayout& layout;
  const Contract* contract = nullptr;  ///< null: none
  bool stays = false;                  ///< a drain is not a reason to leave
  bool running = false;                ///< its ranks are at work
  bool can_stop = false;               ///< what is stopped now continues from where it is
};

/// What a run should do about its nodes.
struct NodeAdvice {
  std::string text;                   ///< to tell its user; empty: nothing to do
  std::string stop;                   ///< why to stop at a checkpoint and be requeued; empty: don't
  std::optional<std::uint32_t> gpus;  ///< the size after that; none: as it was submitted
  bool ask_all = false;               ///< Slurm is to be asked for all its nodes first
};

/// Leaves nodes that are drained, and grows a job back if it runs without nodes that it lost.
class NodePolicy {
 public:
  using Clock = std::chrono::steady_clock;

  /// The nodes to ask Slurm for now; nothing: it is not time to.
  std::optional<std::vector<std::string>> look(const NodeFacts& facts, Clock::time_point now);
  /// What follows from the answer.
  NodeAdvice advise(const std::vector<NodeReport>& reports, const NodeFacts& facts,
                    Clock::time_point now);
  /// From now on the job runs without these nodes.
  void note_lost(const std::vector<NodeShare>& shares, Clock::time_point now);

 private:
  NodeAdvice judge(const std::vector<NodeReport>& reports, const NodeFacts& facts,
                   Clock::time_point now);
  NodeAdvice leave(const std::vector<NodeReport>& reports, const NodeFacts& facts);
  NodeAdvice grow_back(const std::vector<NodeReport>& reports, const NodeFacts& facts,
                       Clock::time_point now) const;

  Clock::time_point next_look_;
  Clock::time_point asked_all_;
  std::vector<std::string> leaving_;  ///< draining nodes; all nodes are asked for
  std::vector<NodeShare> lost_;       ///< since this run of the job began
  Clock::time_point shrunk_at_;
  bool told_ = false;  ///< that the job stays
};

}  // namespace bellows
