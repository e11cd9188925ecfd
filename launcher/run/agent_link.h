// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/protocol/protocol.h"
#include "common/child.h"
#include "common/result.h"
#include "launcher/base/line_buffer.h"
#include "launcher/ranks/rank_layout.h"

namespace bellows {

/// The step that runs one agent on each node, and the JSON lines to and from all of them through
/// srun's standard input and output. Never blocks; the owner polls.
class AgentLink {
 public:
  struct Options {
    std::string program;      ///< this binary, as the nodes see it
    std::string socket_path;  ///< where agents serve their ranks
    std::string step_name;
    std::vector<std::string> environment;
  };

  static Result<AgentLink> start(const RankLayout& layout, const Options& options);

  void send(const Command& command);
  void add_poll(std::vector<pollfd>& fds) const;
  /// Writes what waits and reads what came. Lines that are no events count as errors.
  std::vector<Event> exchange();
  /// What srun and the agents wrote on standard error, as read by exchange() since the last call.
  std::vector<std::string> take_errors();
  /// How the first agent that failed ended, as soon as srun says it. srun then ends the others, and
  /// the step ends seconds later. Empty: as far as is known, all are alive.
  const std::string& loss() const { return loss_; }
  /// The node whose loss ended its agent, according to Slurm; empty when the agent died alone.
  const std::string& lost_node() const { return lost_node_; }
  /// How they ended, for a person: loss(), or what became of their step, and of agents that never
  /// spoke the last line on standard error.
  std::string end();
  /// Whether they can still read commands.
  bool open() const { return child_.in() >= 0; }
  /// No more commands: the agents end.
  void close() { child_.close_in(); }
  Child& child() { return child_; }
  /// Where the agents run.
  const std::vector<std::string>& nodes() const { return nodes_; }

 private:
  AgentLink(Child child, std::vector<std::string> nodes)
      : child_(std::move(child)), nodes_(std::move(nodes)) {}
  void read_errors();
  void note_loss(std::string_view text);
  Child child_;
  std::vector<std::string> nodes_;
  LineReader reader_;
  LineReader error_reader_;
  std::vector<std::string> errors_;
  std::string loss_;
  std::string lost_node_;
  bool spoke_ = false;
  std::string last_words_;  ///< before any agent spoke
  LineWriter writer_;
};

}  // namespace bellows
