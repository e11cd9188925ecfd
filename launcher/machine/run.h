// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/protocol/coordinator.h"
#include "checkpoint/protocol/step_choice.h"
#include "launcher/machine/action.h"
#include "launcher/machine/node_policy.h"
#include "launcher/machine/open_saves.h"
#include "launcher/machine/restart_budget.h"
#include "launcher/machine/restore_tally.h"
#include "launcher/machine/rules.h"
#include "launcher/machine/storage_watch.h"
#include "launcher/machine/time_left.h"
#include "launcher/ranks/gang_start.h"
#include "launcher/ranks/hang_detector.h"
#include "launcher/ranks/rank_ends.h"
#include "launcher/ranks/rank_failure.h"
#include "launcher/ranks/rank_layout.h"
#include "launcher/record/directory_claim.h"
#include "slurm/job.h"

namespace bellows {

/// What is known of the step of agents.
struct AgentsView {
  bool there = false;     ///< it was started and not dropped
  bool open = false;      ///< they take commands
  bool ended = false;     ///< their srun
  bool well = false;      ///< as far as is known they can serve the next attempt too
  bool said_why = false;  ///< one of them, of its own failure
  std::vector<std::string> nodes{};
  std::string loss{};       ///< how the first one that failed ended; empty: all are alive
  std::string lost_node{};  ///< the node whose loss ended it
  ChildExit exit{};         ///< of their srun, once it has ended
  std::string end{};        ///< how it ended, for a person
};

/// What is known of the step of ranks.
struct RanksView {
  bool there = false;  ///< it was started and not dropped
  bool gone = false;   ///< its srun has ended
  std::optional<ChildExit> end{};
  std::optional<std::string> finished{};  ///< once it has ended: the program says so by this file
};

/// One start of the ranks.
struct Attempt {
  std::uint32_t number = 0;
  std::set<std::uint32_t> joined{};
  RankEnds ends{};
  RestoreTally restored{};
  Coordinator commits{1};
  std::optional<StopDecision> decision{};
  /// Nodes of the ranks' step when it lost one, with sbatch --no-kill; 0: it has lost none.
  std::size_t shrunk_from = 0;
};

/// How far this run of the job has come, in all its attempts.
struct RunProgress {
  std::uint64_t newest_step = 0;
  /// What the ranks said last of the training, in samples; 0: nothing.
  std::uint64_t batch = 0;
  std::uint64_t noise_scale = 0;
  std::optional<std::uint64_t> newest_commit{};  ///< as found on disk at first
  bool committed = false;                        ///< a step, in this run
  bool ever_joined = false;                      ///< a rank
  bool own_saved = false;                        ///< the program's own checkpoint for the stop
  std::string save_error{};                      ///< the last one told; empty: saves go well
  std::chrono::steady_clock::time_point save_failed{};
};

/// A stop that is under way.
struct Stop {
  std::string reason;
  std::optional<std::uint32_t> gpus{};
  std::optional<std::uint64_t> batch{};
  std::uint64_t client = 0;   ///< 0: nobody outside waits
  bool hold = false;          ///< the job waits for its release then
  bool from_scratch = false;  ///< the program's work may be lost
  bool planned = false;       ///< by bellowsd, together with other jobs
  bool fruitless = false;     ///< this run saved nothing new
  bool saved = false;         ///< the stop's own checkpoint is committed

  /// The size to go on with if whoever asked for the stop does no more. A job that was to grow on a
  /// plan keeps its size then: the others may not have given up what it was to get.
  std::optional<std::uint32_t> size_alone(std::uint32_t now) const {
    return planned && gpus && *gpus > now ? std::nullopt : gpus;
  }
};

/// The last fault.
struct Fault {
  bool pending = false;   ///< Slurm has yet to say whether it is one
  bool hang = false;      ///< it may yet end by itself
  bool hopeless = false;  ///< another try would end as the last one did
  Blame blame = Blame::program;
  std::chrono::steady_clock::time_point at{};
  int exit_code = 0;
};

/// What is asked of Slurm, and why this run may come to its end.
struct Doubts {
  bool ask_job = false;          ///< what state the job is in
  bool term_came = false;        ///< which may mean a stop
  bool time_limit_near = false;  ///< the stop is for it
  bool out_of_tries = false;     ///< of those that the cluster's failures get in a run
  std::uint32_t later = 1;       ///< factor on the usual delay of the next start
  bool end_recorded = false;     ///< the history already says why this run ends
};

/// Who owns the checkpoint directory.
struct Ownership {
  DirectoryOwner before{};    ///< when this attempt began
  bool said_unknown = false;  ///< that Slurm does not say whether the owner is over
  bool ours = false;          ///< this run was seen to own it
};

/// What was said or recorded, so that it is not repeated.
struct SaidOnce {
  bool unused = false;                                 ///< that the program does not use libbellows
  std::chrono::steady_clock::time_point commit{};      ///< recorded last
  std::chrono::steady_clock::time_point save_begun{};  ///< the same
};

/// What every state of a run knows and does. Reads no clock: `now` is the time of the input.
struct Run {
  using Clock = std::chrono::steady_clock;

  Run(RunRules the_rules, SlurmJob the_job, RankLayout the_layout);

  const RunRules rules;
  SlurmJob job;
  RankLayout layout;
  Clock::time_point now{};
  std::string cause;  ///< of the next attempt, or of the end
  std::vector<Action> actions;

  AgentsView agents;
  RanksView ranks;
  Attempt attempt;
  RunProgress progress;
  std::optional<Stop> stop;
  Fault fault;
  Doubts doubts;
  Ownership owner;
  SaidOnce told;

  HangDetector hang;
  GangStart gang;
  StorageWatch storage;
  RankFailure failure;
  OpenSaves saves;
  StepChoice choice;
  TimeLeft time;
  NodePolicy nodes;
  RestartBudget budget;

  template <typename A>
  void act(A action) {
    actions.emplace_back(std::move(action));
  }
  void say(std::string text) { act(action::Say{std::move(text)}); }
  void record(const std::string& event, const std::string& why, EventNote note = EventNote::none);
  /// Sends nothing to agents that are gone.
  void send(const Command& command);
  /// Client 0 stands for no client: nobody waits for an answer.
  void reply(std::uint64_t client, const std::string& json);
  void refuse(std::uint64_t client, const std::string& why);

  /// Notes that something seems to have gone wrong. A requeue, a cancel and a dead node look the
  /// same here, so Slurm is asked first. Handles one fault at a time.
  void note_fault(const std::string& why, Blame blame, int exit_code);
  void drop_hang(const std::string& why);
  /// Shown when the program is known not to use libbellows, and when that begins to matter.
  void note_unused(const std::string& when);
  void drop_agents();
  void drop_ranks();
  void dismiss_agents();

  double seconds() const;
  std::string attempt_name() const { return rules.run.attempt(attempt.number); }
  std::string ranks_step_name() const;
  bool all_joined() const { return attempt.joined.size() >= layout.world(); }
  /// For a program without libbellows: it can be made to save.
  bool saves_by_itself() const { return attempt.joined.empty() && rules.own.possible(); }
  bool agent_lost() const { return agents.there && !agents.loss.empty(); }
  /// What the ranks gave to the agents cannot become a checkpoint any more.
  bool drained() const;
};

}  // namespace bellows
