// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/protocol/protocol.h"
#include "common/child.h"
#include "launcher/record/directory_claim.h"
#include "launcher/slurm/limit_probe.h"
#include "launcher/slurm/node_watch.h"
#include "slurm/interface.h"
#include "slurm/requeue.h"

namespace bellows {

/// All that a run can learn. Those that answer an action name it.
namespace input {

/// Answers LookAround.
struct Surroundings {
  DirectoryOwner owner;
  std::optional<Result<SlurmJob>> owner_job{};     ///< if the owner is another run
  std::optional<std::string> finished{};           ///< the file by which this run has finished
  std::optional<std::string> finished_of_owner{};  ///< the same of the run that owns the directory
  bool halt_was_lost = false;                      ///< only asked before the first attempt
};
/// Answers StartAgents, when that fails.
struct AgentsNotStarted {
  std::string text;
};
struct AgentSays {
  Event event;
};
/// They take no more commands, though their step may go on.
struct AgentsClosed {};
/// srun says that an agent ended badly; it takes the others down.
struct AgentLost {
  std::string loss;       ///< for a person
  std::string end;        ///< the same, with the last words of agents that never spoke
  std::string lost_node;  ///< the node whose loss ended it; empty: it died alone
};
/// Their step is over.
struct AgentsEnded {
  ChildExit exit;
  std::string end;  ///< for a person
};
/// Both answer StartRanks.
struct RanksStarted {};
struct RanksNotStarted {
  std::string text;
};
struct RankWords {
  std::string line;  ///< that a rank wrote to its standard error
};
struct SrunLine {
  std::string line;
};
/// The ranks' srun has ended; what it wrote last may still come.
struct RanksGone {};
/// The ranks' srun has ended, and all that it wrote was passed on.
struct RanksEnded {
  ChildExit exit;
  std::optional<std::string> finished{};  ///< the file by which the program has finished
};
struct OwnCommandEnded {
  ChildExit exit;
  std::optional<std::string> finished{};
};

struct StatusRequest {
  std::uint64_t client = 0;
};
struct StopRequest {
  std::uint64_t client = 0;
  bool hold = false;                     ///< the job is to wait for its release then
  bool from_scratch = false;             ///< the program's work may be lost
  bool planned = false;                  ///< bellowsd wants it
  std::optional<std::uint64_t> gpus{};   ///< as it was asked for; none: as before
  std::optional<std::uint64_t> batch{};  ///< the same
};
/// May answer PlanNextStart, before anything else.
struct BatchNotRecorded {
  std::string text;
};
/// Slurm sends SIGTERM for a requeue, a cancel, a time limit and a preemption alike.
struct Term {};
struct Usr1 {};

/// What slurmctld says about the job, which Wanted::job asks for.
struct JobLook {
  Result<SlurmJob> job;
};
/// Answers LookAtSteps.
struct StepsLook {
  Result<std::vector<SlurmStep>> steps;
};
/// Answers SignalStep.
struct StepSignalled {
  Status status;
};
/// May answer AskLimits.
struct Limits {
  JobLimits limits;
};
/// May answer AskNodes.
struct Nodes {
  std::vector<NodeReport> reports;
};
/// The attempt that owns the checkpoint directory now.
struct Owner {
  std::string attempt;
};
/// The history cannot be written, or can be again.
struct HistoryNews {
  std::string text;
  bool well = false;
};
/// Answers FindStepBelow.
struct StepOnDisk {
  std::optional<std::uint64_t> step;
};
/// Answers CountFruitlessRuns; none: the history cannot be read.
struct FruitlessRuns {
  std::optional<std::uint32_t> runs;
};
/// Answers WalkRoad.
struct RoadDone {
  RequeueRoad::Done done;
};

/// No process ran for this long, as in a suspended job, so no deadline may pass in that time.
struct Paused {
  std::chrono::steady_clock::duration gap;
};
/// Time has passed.
struct Tick {};

}  // namespace input

using Input =
    std::variant<input::Surroundings, input::AgentsNotStarted, input::AgentSays, input::AgentLost,
                 input::AgentsEnded, input::AgentsClosed, input::RanksStarted,
                 input::RanksNotStarted, input::RankWords, input::SrunLine, input::RanksGone,
                 input::RanksEnded, input::OwnCommandEnded, input::StatusRequest,
                 input::StopRequest, input::BatchNotRecorded, input::Term, input::Usr1,
                 input::JobLook, input::StepsLook, input::StepSignalled, input::Limits,
                 input::Nodes, input::Owner, input::HistoryNews, input::StepOnDisk,
                 input::FruitlessRuns, input::RoadDone, input::Paused, input::Tick>;

}  // namespace bellows
