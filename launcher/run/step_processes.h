// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <vector>

#include "common/child.h"
#include "launcher/machine/action.h"
#include "launcher/machine/input.h"
#include "launcher/ranks/output_relay.h"
#include "launcher/record/finished_file.h"
#include "launcher/run/agent_link.h"
#include "launcher/run/run_context.h"

namespace bellows {

/// The processes of a run: its steps of agents and ranks, and the command that makes a program save
/// which does not use libbellows. Carries out what the machine wants of them, and tells what they
/// say and how they end. All three end with the object.
class StepProcesses {
 public:
  using Clock = std::chrono::steady_clock;

  /// `context`, `finished` and `output` must outlive this. `restart`: of the run.
  StepProcesses(const RunContext& context, const FinishedFile& finished, OutputRelay& output,
                std::uint32_t restart);

  void add_poll(std::vector<pollfd>& fds) const;
  /// What agents and ranks have written. Agents come first: a rank that goes is told by its agent
  /// before others fail for it and srun names those.
  std::vector<Input> words();
  /// The ranks' srun has ended; once.
  bool ranks_gone(Clock::time_point now);
  /// The last words of ranks that are gone and how they ended, once that is all.
  std::vector<Input> end_of_ranks(Clock::time_point now);
  /// The ends of agents and of the command, each once, after the agents' last words.
  std::vector<Input> ends();
  /// Waits a moment for both steps to end by themselves.
  void let_go();

  // What each answers, if anything.
  std::vector<Input> act(const action::StartAgents& start);
  std::vector<Input> act(const action::SendAgents& send);
  std::vector<Input> act(const action::DismissAgents&);
  std::vector<Input> act(const action::SignalAgents& signal);
  std::vector<Input> act(const action::DropAgents&);
  std::vector<Input> act(const action::StartRanks& start);
  std::vector<Input> act(const action::SignalRanks& signal);
  std::vector<Input> act(const action::DropRanks&);
  std::vector<Input> act(const action::KillRanksHere& kill);
  std::vector<Input> act(const action::StartOwnCommand& start);
  std::vector<Input> act(const action::DropOwnCommand&);

 private:
  void hear_agents(std::vector<Input>& news);
  void read_errors(std::vector<Input>& news);
  void dismiss();

  const RunContext& context_;
  const FinishedFile& finished_;
  OutputRelay& output_;
  std::uint32_t restart_;
  std::optional<AgentLink> agents_;
  bool told_loss_ = false;
  bool told_closed_ = false;
  bool told_agents_ended_ = false;
  std::optional<Child> ranks_;
  std::optional<Clock::time_point> ranks_gone_;
  bool told_ranks_ended_ = false;
  std::optional<Child> own_command_;
};

}  // namespace bellows
