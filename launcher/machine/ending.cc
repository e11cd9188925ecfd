// SPDX-License-Identifier: Apache-2.0
// How an attempt ends: what the agents still write, the end of both steps, and what follows.
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "launcher/base/exit_status.h"
#include "launcher/machine/moves.h"
#include "launcher/ranks/rank_command.h"

namespace bellows {
namespace {

using state::Clearing;
using state::Next;
using namespace std::chrono_literals;

constexpr auto kEndsByItself = 10s;
constexpr auto kEndsAfterSignal = 5s;
constexpr auto kAskOften = 1s;
constexpr auto kLookOften = 200ms;
constexpr int kMostEscalations = 60;
/// For a step that waits for a lost node: see never_ends().
constexpr int kMostAfterLoss = 4;
constexpr int kMostInTree = 120;
/// REVERSE_TREE_WIDTH of src/common/reverse_tree.h: on so many nodes and more the slurmstepds of a
/// step tell their ends to each other, and slurmctld is told about all of them by the first one.
constexpr std::size_t kTreeFrom = 7;
/// A cluster in trouble gets longer pauses from run to run, about half an hour in all.
constexpr std::uint32_t kLatest = 64;

bool is_own_step(const SlurmStep& step) {
  return step.name.starts_with("bellows-agent-") || step.name.starts_with(kRanksStep);
}

// slurmctld notes that the lost node's ranks are gone, but ends their step only at the next word of
// one of its slurmstepds: without the tree there is none when the others had ended before, and
// scancel does not help. With it the first one waits for all below it, 60 s and 3 s for each level.
int most_escalations(const Run& run) {
  if (run.attempt.shrunk_from == 0) return kMostEscalations;
  return run.attempt.shrunk_from < kTreeFrom ? kMostAfterLoss : kMostInTree;
}

State give_up(Run& run) {
  run.record("FAILED", run.cause);
  run.say("giving up: " + run.cause);
  if (run.stop) run.refuse(run.stop->client, run.cause);
  return finish(run, run.fault.exit_code == 0 ? kFailed : run.fault.exit_code);
}

State start_again(Run& run) {
  run.cause += "; back to " + begin_of_ranks(run, true);
  if (auto failures = run.budget.failures_of(Blame::program); failures > 0)
    run.say(fmt::format("starting again ({} of at most {} failures without progress)", failures,
                        run.budget.most()));
  return state::Waiting{run.now + run.budget.pause()};
}

// A run without progress would make none in the next try either, so a job restarts after one only
// as often as after other failures.
State stop_cleared(Run& run) {
  if (run.stop && run.stop->client != 0 && !run.stop->saved) return hand_over(run);
  const bool got_on = run.progress.committed || run.progress.own_saved;
  if (got_on || (!run.doubts.time_limit_near && !run.doubts.out_of_tries)) return requeue(run);
  if (run.stop) {
    run.stop->reason += ", without a new checkpoint";
    run.stop->fruitless = true;
  }
  run.act(action::CountFruitlessRuns{});
  return state::Counting{};
}

State complete(Run& run) {
  run.act(action::LeaveFinished{});
  run.record("COMPLETED", run.cause);
  if (run.stop) run.reply(run.stop->client, nlohmann::json{{"event", "finished"}}.dump());
  return finish(run, kOk);
}

State cleared(Run& run, const Clearing& clearing) {
  run.drop_ranks();
  const bool kept = clearing.next == Next::restart && clearing.escalation == 0 && keeps_agents(run);
  if (!kept) run.drop_agents();
  switch (clearing.next) {
    case Next::restart:
      return start_again(run);
    case Next::stop:
      return stop_cleared(run);
    case Next::complete:
      return complete(run);
    case Next::leave:
      return finish(run, run.fault.exit_code);
    case Next::fail:
      break;
  }
  return give_up(run);
}

Move steps_never_end(Run& run, const Clearing& clearing) {
  if (clearing.next != Next::restart) return cleared(run, clearing);
  run.say("the steps do not end: a node may be lost; requeueing the job");
  if (run.attempt.shrunk_from == 0) run.cause = "the steps of an earlier attempt did not end";
  return requeue(run);
}

}  // namespace

// What they had given to the agents may still become checkpoints.
void begin_drain(Run& run) { run.send({command::Query{run.saves.begin_drain(run.now)}}); }

State drain(Run& run, Next next) {
  begin_drain(run);
  return state::Draining{run.now + kLookOften, next};
}

State clear(Run& run, Next next, const std::string& cause) {
  run.cause = cause;
  if (!run.rules.own.command.empty()) run.act(action::DropOwnCommand{});
  // Ranks that saved for the stop are about to exit; what they still write does not concern the
  // launcher.
  const bool leaving = (run.stop && run.stop->saved) || next == Next::complete;
  if (run.ranks.there && !leaving) run.act(action::SignalRanks{SIGTERM});
  Clearing clearing{run.now + kEndsByItself, next};
  if (auto further = check_clearing(run, clearing)) return *further;
  return clearing;
}

State end_draining(Run& run, const state::Draining& draining) {
  run.agents.well &= run.saves.all_answered(run.layout.nodes().size());
  return clear(run, draining.next, run.cause);
}

Move check_clearing(Run& run, Clearing& clearing) {
  const bool no_ranks = !run.ranks.there || run.ranks.gone;
  const bool agents_over = !run.agents.there || run.agents.ended;
  const bool kept = clearing.next == Next::restart && clearing.escalation == 0 && keeps_agents(run);
  // Ranks may wait for a stop that their agent was told of, when srun took it down with the one
  // that died: once it has gone they see that none comes.
  const bool useless = no_ranks || (run.agent_lost() && run.drained());
  if (useless && !agents_over && !kept) run.dismiss_agents();
  if (!no_ranks || !(agents_over || kept) || clearing.escalation >= 2) return std::nullopt;
  if (run.attempt.shrunk_from == 0 || clearing.next != Next::restart) return cleared(run, clearing);
  // A step that waits for a lost node holds what the next attempt needs of the others.
  if (clearing.asked == Clearing::Asked::nothing) {
    clearing.asked = Clearing::Asked::whether_steps_stay;
    run.act(action::LookAtSteps{});
  }
  return std::nullopt;
}

Move escalate(Run& run, Clearing& clearing) {
  ++clearing.escalation;
  clearing.until = run.now + (clearing.escalation <= 2 ? kEndsAfterSignal : kAskOften);
  if (clearing.escalation <= 2) {
    const int number = clearing.escalation == 1 ? SIGTERM : SIGKILL;
    if (run.ranks.there) run.act(action::SignalRanks{number});
    if (run.agents.there) run.act(action::SignalAgents{number});
    return std::nullopt;
  }
  // What is left is for slurmctld to end, which may be out of reach.
  if (clearing.next == Next::leave) return cleared(run, clearing);
  if (clearing.escalation > most_escalations(run)) return steps_never_end(run, clearing);
  // A killed srun leaves its tasks to Slurm.
  clearing.asked = Clearing::Asked::what_to_kill;
  run.act(action::LookAtSteps{});
  return std::nullopt;
}

Move clearing_steps_known(Run& run, Clearing& clearing,
                          const Result<std::vector<SlurmStep>>& steps) {
  const auto asked = std::exchange(clearing.asked, Clearing::Asked::nothing);
  if (asked == Clearing::Asked::whether_steps_stay) {
    const bool stay = !steps || std::any_of(steps->begin(), steps->end(), [](const auto& step) {
      return step.name.starts_with(kRanksStep);
    });
    return stay || clearing.escalation >= 2 ? Move() : cleared(run, clearing);
  }
  if (asked == Clearing::Asked::nothing) return std::nullopt;
  clearing.until = run.now + kAskOften;
  if (!steps) {
    --clearing.escalation;
    return std::nullopt;
  }
  bool left = false;
  for (const SlurmStep& step : *steps) {
    if (!is_own_step(step)) continue;
    left = true;
    run.act(action::SignalStep{step.id, SIGKILL});
  }
  // Only a restart in place needs what such a step holds.
  if (left && (run.attempt.shrunk_from == 0 || clearing.next == Next::restart)) return std::nullopt;
  return cleared(run, clearing);
}

State fruitless_runs_known(Run& run, std::optional<std::uint32_t> runs) {
  if (!runs) return requeue(run);
  if (run.doubts.out_of_tries) {
    run.doubts.later = std::min(1u << std::min(*runs, 31u), kLatest);
    run.cause += fmt::format("; {} runs in a row without a new checkpoint", *runs + 1);
    return *runs + 1 >= RestartBudget::kMostOfCluster ? give_up(run) : requeue(run);
  }
  run.cause = "the time limit was reached again without a new checkpoint";
  return *runs >= run.budget.most() ? give_up(run) : requeue(run);
}

State finish(Run& run, int exit_status) {
  if (exit_status != kOk) run.act(action::RemoveMarker{});
  run.act(action::Exit{exit_status});
  return state::Over{exit_status};
}

}  // namespace bellows
