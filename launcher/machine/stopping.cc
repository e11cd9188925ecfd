// SPDX-License-Identifier: Apache-2.0
// Stops: what is taken up when, a program's own checkpoint, and the hand-over.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "common/text.h"
#include "launcher/machine/moves.h"

namespace bellows {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kNoLimit = std::chrono::hours(24 * 365);
constexpr auto kAskOften = 500ms;
// Any margin is safe. The smallest stops soonest: the newest known step is up to a second old, so
// the first gate usually only shows where the ranks are, and the next one stops them.
constexpr std::uint64_t kGateAhead = 1;

/// It is too late for any request.
bool is_ending(const State& state) {
  using namespace bellows::state;
  if (const auto* draining = std::get_if<Draining>(&state)) return draining->next != Next::restart;
  if (const auto* clearing = std::get_if<Clearing>(&state)) return clearing->next != Next::restart;
  return std::holds_alternative<Judging>(state) || std::holds_alternative<Forgotten>(state) ||
         std::holds_alternative<Counting>(state) || std::holds_alternative<Requeueing>(state) ||
         std::holds_alternative<Over>(state);
}

/// The attempt's steps are being ended already: only what follows after that changes.
bool redirect(State& state, state::Next next) {
  if (auto* draining = std::get_if<state::Draining>(&state)) draining->next = next;
  if (auto* clearing = std::get_if<state::Clearing>(&state)) clearing->next = next;
  return std::holds_alternative<state::Draining>(state) ||
         std::holds_alternative<state::Clearing>(state);
}

/// "to 4 GPUs, batch 512"; nothing: what is as before.
std::string changes_of(const Stop& stop, const std::optional<std::uint32_t>& gpus) {
  std::string text = gpus ? " to " + counted(*gpus, "GPU") : "";
  if (stop.batch) text += fmt::format("{} batch {}", gpus ? "," : "", *stop.batch);
  return text;
}

void record_stop(Run& run) {
  const std::string to = changes_of(*run.stop, run.stop->gpus);
  run.record("CHECKPOINTING", run.stop->reason + to,
             run.stop->hold ? EventNote::halting : EventNote::none);
}

std::string stopping(const std::optional<std::uint64_t>& step) {
  json reply = {{"event", "stopping"}, {"step", nullptr}};
  if (step) reply["step"] = *step;
  return reply.dump();
}

State begin_own_stop(Run& run) {
  record_stop(run);
  run.reply(run.stop->client, stopping({}));
  const OwnCheckpoint& own = run.rules.own;
  run.say(fmt::format("stopping ({}): {}", run.stop->reason, own.describe()));
  if (!own.command.empty()) run.act(action::StartOwnCommand{own.command});
  return state::Saving{run.now, OwnStop(own, run.stop->client != 0, run.now)};
}

/// Agents may have ended meanwhile.
State ranks_go_on(Run& run) {
  State running = state::Running{run.now + kNoLimit};
  if (!run.agents.there || !run.agents.ended) return running;
  const input::AgentsEnded ended{run.agents.exit, run.agents.end};
  return agents_ended(run, running, ended).value_or(running);
}

State end_own_stop(Run& run, OwnStopEnd end, const std::string& trouble) {
  run.act(action::DropOwnCommand{});
  switch (end) {
    case OwnStopEnd::finished:
      return clear(run, state::Next::complete, "the program has finished");
    case OwnStopEnd::refused:
      run.refuse(run.stop->client, trouble);
      run.record("PROCESSING", trouble + "; the ranks continue", EventNote::ranks_go_on);
      run.stop.reset();
      run.act(action::PlanNextStart{});
      return ranks_go_on(run);
    case OwnStopEnd::unsaved:
      run.say(trouble + "; the program continues from what it has saved");
      break;
    case OwnStopEnd::saved:
    case OwnStopEnd::waiting:
      run.say("the program has saved its own checkpoint");
      run.progress.own_saved = true;
      run.record("STORING", "the program's own checkpoint: " + run.stop->reason);
  }
  return clear(run, state::Next::stop, run.stop->reason);
}

/// Why a stop that a client wants must wait, given the state of the ranks; empty: it need not.
std::string not_yet(const Run& run, const Stop& stop) {
  if (stop.client == 0 || stop.from_scratch || run.saves_by_itself()) return "";
  if (run.attempt.joined.empty())
    return "its program has not called bellows_init (yet), and nothing else makes it save, so its "
           "work may be lost; try again in a moment, state in the script how it saves "
           "(--checkpoint-signal or --checkpoint-cmd of bellows run), or stop it as it is with "
           "--from-scratch";
  return run.all_joined() ? "" : "its ranks are still starting; try again in a moment";
}

}  // namespace

Move signal_usr1(Run& run, State& state) {
  if (run.stop) return std::nullopt;
  run.say("signal USR1: stopping at a checkpoint");
  return request_stop(run, state, Stop{.reason = "signal USR1"});
}

Move request_stop(Run& run, State& state, Stop stop) {
  if (run.stop) {
    run.refuse(stop.client, "the job is already stopping: " + run.stop->reason);
    return std::nullopt;
  }
  const bool looking = std::holds_alternative<state::Looking>(state);
  if (looking || is_ending(state)) {
    run.refuse(stop.client, looking ? "the job is starting; try again" : "the job is ending");
    return std::nullopt;
  }
  const bool running = std::holds_alternative<state::Running>(state);
  if (const std::string why = running ? not_yet(run, stop) : ""; !why.empty()) {
    json refusal = {{"event", "error"}, {"error", why}};
    if (!run.attempt.joined.empty()) refusal["again"] = true;
    run.reply(stop.client, refusal.dump());
    return std::nullopt;
  }
  run.stop = std::move(stop);
  run.act(action::PlanNextStart{run.stop->size_alone(run.layout.gpus()), run.stop->batch,
                                run.stop->planned ? run.stop->gpus : std::nullopt});
  if (running && run.saves_by_itself()) return begin_own_stop(run);
  if (running && run.all_joined()) {
    record_stop(run);
    run.attempt.decision.emplace(run.layout.nodes().size(), run.progress.newest_step, kGateAhead);
    run.send({run.attempt.decision->begin()});
    return std::nullopt;
  }
  run.reply(run.stop->client, stopping({}));
  if (redirect(state, state::Next::stop)) return std::nullopt;
  return clear(run, state::Next::stop, run.stop->reason);
}

Move watch_saving(Run& run, state::Saving& saving) {
  OwnStop& own = saving.own;
  if (run.ranks.there && own.must_signal() && !saving.asked && run.now >= saving.until) {
    saving.asked = true;
    run.act(action::LookAtSteps{});
  }
  if (run.ranks.end) {
    own.note_finished(run.ranks.finished.has_value());
    const ChildExit exit = end_of_ranks(run);
    own.note_ranks(exit);
    if (run.failure.culprit(exit) == RankFailure::Culprit::cluster)
      own.note_lost(run.failure.cause(exit));
  }
  const OwnStopEnd end = own.judge(run.now);
  if (end != OwnStopEnd::waiting) return end_own_stop(run, end, own.trouble());
  if (run.now >= saving.until) saving.until = run.now + kAskOften;
  return std::nullopt;
}

// Slurm reaches ranks on every node. Until it answers, the program has not been told.
Move saving_steps_known(Run& run, state::Saving& saving,
                        const Result<std::vector<SlurmStep>>& steps) {
  if (!std::exchange(saving.asked, false)) return std::nullopt;
  saving.until = run.now + kAskOften;
  if (!steps) {
    run.say(steps.error().text + "; asking again");
    saving.own.begin_time(run.now);
    return std::nullopt;
  }
  for (const SlurmStep& step : *steps)
    if (step.name == run.ranks_step_name())
      run.act(action::SignalStep{step.id, run.rules.own.signal});
  return std::nullopt;
}

State hand_over(Run& run) {
  run.fault.pending = false;
  if (run.stop->client == 0) return clear(run, state::Next::stop, run.stop->reason);
  json reply = {{"event", "committed"}, {"step", nullptr}};
  if (auto step = run.progress.newest_commit) reply["step"] = *step;
  if (run.progress.own_saved) reply["own"] = "saved";
  if (!run.progress.own_saved && !run.progress.ever_joined) reply["own"] = "unknown";
  // The ranks have ended anyway, and the next ones need not have the old size.
  const auto& decision = run.attempt.decision;
  const auto unsaved =
      decision && !run.stop->saved ? decision->step() : std::optional<std::uint64_t>();
  if (unsaved) reply["unsaved"] = *unsaved;
  if (run.stop->batch) reply["batch"] = *run.stop->batch;
  const std::string but = unsaved ? fmt::format(", but step {} could not be saved", *unsaved) : "";
  if (run.stop->hold)
    run.record("HALTED", "bellows halt" + but);
  else
    run.record("RESIZING",
               changes_of(*run.stop, run.stop->gpus.value_or(run.layout.gpus())).substr(1) + but);
  run.doubts.end_recorded = true;
  run.reply(run.stop->client, reply.dump());
  return state::HandedOver{run.now + kHandOver};
}

}  // namespace bellows
