// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/protocol/protocol.h"
#include "launcher/ranks/rank_layout.h"
#include "launcher/record/event_log.h"
#include "slurm/requeue.h"

namespace bellows {

/// All that a run can order. The answer to each action is in input.h.
namespace action {

/// Who owns the checkpoint directory, whether the program has finished, and, before the first
/// attempt, whether the run before this one lost a halt.
struct LookAround {
  bool first = false;
};
struct StartAgents {
  RankLayout layout;
  std::string step_name;
};
struct SendAgents {
  Command command;
};
/// They end by themselves then.
struct DismissAgents {};
struct SignalAgents {
  int signal;
};
/// Kills what is left of them.
struct DropAgents {};
struct StartRanks {
  RankLayout layout;
  std::uint32_t attempt;
  std::string step_name;
  std::optional<Rendezvous> rendezvous;
};
/// To their srun, which signals all of them.
struct SignalRanks {
  int signal;
};
struct DropRanks {};
/// Those of an attempt that Slurm may not reach.
struct KillRanksHere {
  std::string attempt;
};
struct StartOwnCommand {
  std::string command;
};
struct DropOwnCommand {};

struct LookAtSteps {};
struct SignalStep {
  std::uint32_t step;
  int signal;
};
struct AskLimits {};
struct AskNodes {
  std::vector<std::string> names;  ///< empty: all
};
/// The newest committed step on disk that is older.
struct FindStepBelow {
  std::uint64_t step;
};
struct CountFruitlessRuns {};
struct WalkRoad {
  NextRun next;
};

struct Say {
  std::string text;
};
struct Record {
  JobEvent event;  ///< time 0: now
};
struct Reply {
  std::uint64_t client;
  std::string text;  ///< a JSON object
};
/// Of the next start, which comes also when this launcher is killed; nothing: as before.
struct PlanNextStart {
  std::optional<std::uint32_t> gpus;   ///< with which the node's plugin then requeues the job
  std::optional<std::uint64_t> batch;  ///< that ranks then use
  /// Nothing: with any number of GPUs; otherwise only with so many, as a plan has it.
  std::optional<std::uint32_t> batch_at{};
};
/// If the launcher is killed after this, its successor finds that the program has finished.
struct LeaveFinished {};
/// The job is given up and must not come back.
struct RemoveMarker {};
struct Exit {
  int status;
};

}  // namespace action

using Action =
    std::variant<action::LookAround, action::StartAgents, action::SendAgents, action::DismissAgents,
                 action::SignalAgents, action::DropAgents, action::StartRanks, action::SignalRanks,
                 action::DropRanks, action::KillRanksHere, action::StartOwnCommand,
                 action::DropOwnCommand, action::LookAtSteps, action::SignalStep, action::AskLimits,
                 action::AskNodes, action::FindStepBelow, action::CountFruitlessRuns,
                 action::WalkRoad, action::Say, action::Record, action::Reply,
                 action::PlanNextStart, action::LeaveFinished, action::RemoveMarker, action::Exit>;

}  // namespace bellows
