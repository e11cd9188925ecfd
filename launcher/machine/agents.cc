// SPDX-License-Identifier: Apache-2.0
// What the agents say, and their end.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/base/exit_status.h"
#include "launcher/machine/moves.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

/// srun may report the end of an agent this long after the ranks that failed because of it.
constexpr auto kDiesWithRanks = 5s;

// Until every agent has the new attempt, what they say may be of the one before.
bool is_stale(const Run& run, const State& state, const Event::Body& event) {
  if (const auto* failed = std::get_if<event::CommandFailed>(&event))
    return !run.attempt.decision && (failed->cmd == "gate" || failed->cmd == "stop");
  return is_beginning(state) && !std::holds_alternative<event::Hello>(event) &&
         !std::holds_alternative<event::Found>(event) &&
         !std::holds_alternative<event::Ready>(event);
}

/// The run does not end in another way already.
bool may_hand_over(const State& state) {
  const auto* clearing = std::get_if<state::Clearing>(&state);
  const bool leaves =
      clearing && (clearing->next == state::Next::complete || clearing->next == state::Next::leave);
  return !leaves && !std::holds_alternative<state::Forgotten>(state) &&
         !std::holds_alternative<state::HandedOver>(state);
}

// What an agent says changes a run: one overload for each event. `all` is the whole of it.

Move heard(Run& run, State& state, const Event& all, const event::Hello&) {
  auto* greeting = std::get_if<state::Greeting>(&state);
  return greeting ? agent_greeted(run, *greeting, all.node) : Move();
}

Move heard(Run& run, State& state, const Event&, const event::Found& found) {
  return std::holds_alternative<state::Finding>(state) ? step_found(run, found) : Move();
}

Move heard(Run& run, State& state, const Event& all, const event::Ready& ready) {
  auto* restoring = std::get_if<state::Restoring>(&state);
  return restoring ? agent_ready(run, *restoring, all.node, ready) : Move();
}

Move heard(Run& run, State&, const Event& all, const event::Gated& gated) {
  if (!run.attempt.decision || !run.stop) return std::nullopt;
  for (const Command& command : run.attempt.decision->handle(all.node, gated)) {
    if (const auto* stop = std::get_if<command::SetStop>(&command.body)) {
      run.say(fmt::format("all ranks stop at step {} ({})", stop->step, run.stop->reason));
      const nlohmann::json reply = {{"event", "stopping"}, {"step", stop->step}};
      run.reply(run.stop->client, reply.dump());
    }
    run.send(command);
  }
  return std::nullopt;
}

// Slurm tells every step of a preemption, and `scancel --signal` reaches steps only.
Move heard(Run& run, State& state, const Event& all, const event::Progress& progress) {
  using Signal = event::Progress::Signal;
  note_progress(run, all.node, progress, std::holds_alternative<state::Running>(state));
  // The other agents of a step in which one died may be ended with SIGTERM too: Slurm knows more.
  if (progress.signal == Signal::term) run.doubts.ask_job = true;
  Move move;
  if (progress.signal == Signal::usr1) move = signal_usr1(run, state);
  run.saves.note_unwritten(all.node, progress, run.now);
  return move;
}

// Ranks that have begun from it have saved nothing, since a save takes all ranks.
Move heard(Run& run, State& state, const Event& all, const event::RestoreError& bad) {
  if (run.choice.note_bad(bad)) run.act(action::FindStepBelow{bad.step});
  fault(run, state,
        fmt::format("rank {} on {} cannot continue from step {}: {}", bad.rank, all.node, bad.step,
                    bad.error.text),
        Blame::storage);
  return std::nullopt;
}

/// RestoreTally has counted it.
Move heard(Run&, State&, const Event&, const event::Restored&) { return std::nullopt; }

Move heard(Run& run, State& state, const Event& all, const event::Rank& rank) {
  note_rank(run, all.node, rank);
  return note_commit(run, all.body, may_hand_over(state));
}

Move heard(Run& run, State& state, const Event& all, const event::SaveError& failed) {
  note_save_error(run, all.node, failed.step, failed.error);
  return note_commit(run, all.body, may_hand_over(state));
}

void note_failure(Run& run, const State& state, const std::string& node,
                  const event::CommandFailed& failed) {
  const Error& error = failed.error;
  if (failed.cmd == "commit") return note_save_error(run, node, failed.step, error);
  run.say(fmt::format("agent on {}: {}", node, error.text));
  // An old checkpoint that could not be removed takes up space, but no work is lost.
  if (failed.cmd == "retention") return;
  run.agents.well = false;
  run.agents.said_why = true;
  // Another run owns the directory now. Which of the two is the current one, Slurm says when asked.
  const Blame blame = error.kind == ErrorKind::io     ? Blame::storage
                      : error.kind == ErrorKind::busy ? Blame::cluster
                                                      : Blame::program;
  fault(run, state, "an agent failed: " + error.text, blame);
}

Move heard(Run& run, State& state, const Event& all, const event::CommandFailed& failed) {
  note_failure(run, state, all.node, failed);
  return note_commit(run, all.body, may_hand_over(state));
}

/// What is left is about saved steps alone.
Move heard(Run& run, State& state, const Event& all, const auto&) {
  return note_commit(run, all.body, may_hand_over(state));
}

}  // namespace

bool is_beginning(const State& state) {
  return std::holds_alternative<state::Greeting>(state) ||
         std::holds_alternative<state::Finding>(state) ||
         std::holds_alternative<state::Restoring>(state);
}

Move agent_said(Run& run, State& state, const Event& event) {
  if (!run.agents.there || is_stale(run, state, event.body)) return std::nullopt;
  if (auto all = run.attempt.restored.add(event.body, run.layout.world()))
    run.record("PROCESSING", *all);
  return std::visit([&](const auto& said) { return heard(run, state, event, said); }, event.body);
}

void agent_lost(Run& run, const State& state, const input::AgentLost& lost) {
  if (!run.agents.there || run.agent_lost()) return;
  run.agents.loss = lost.loss;
  run.agents.lost_node = lost.lost_node;
  run.agents.well = false;
  const bool node = !lost.lost_node.empty();
  // The ranks that died because of it may have been noticed first, or long before. If the agent
  // said why it failed, that is more precise than srun's message.
  const auto* draining = std::get_if<state::Draining>(&state);
  const bool noticed = run.fault.pending || (draining && draining->next == state::Next::restart);
  const bool at_once = run.now - run.fault.at < kDiesWithRanks;
  if (noticed && at_once && run.fault.blame == Blame::program && !run.agents.said_why) {
    run.say(lost.loss);
    run.cause = lost.loss;
    if (node) run.fault.blame = Blame::cluster;
  }
  // Ranks that continue after all have no agent now.
  if (noticed) run.fault.hang = false;
  const bool beginning = is_beginning(state);
  if (beginning || std::holds_alternative<state::Running>(state))
    fault(run, state, lost.end, beginning || node ? Blame::cluster : Blame::program);
}

Move agents_ended(Run& run, State& state, const input::AgentsEnded& ended) {
  if (!run.agents.there) return std::nullopt;
  run.agents.ended = true;
  if (auto* clearing = std::get_if<state::Clearing>(&state)) return check_clearing(run, *clearing);
  run.agents.exit = ended.exit;
  run.agents.end = ended.end;
  // Their end matters once the ranks have ended too, or go on.
  if (std::holds_alternative<state::Saving>(state) || std::holds_alternative<state::Waiting>(state))
    return std::nullopt;
  run.drop_agents();
  if (std::holds_alternative<state::Judging>(state)) return judge_end(run);
  if (const auto* draining = std::get_if<state::Draining>(&state))
    return clear(run, draining->next, run.cause);
  const bool running = std::holds_alternative<state::Running>(state);
  // Agents without ranks leave when they are told about a preemption.
  if (running && ended.exit.ok() && run.attempt.joined.empty()) return std::nullopt;
  if (!std::holds_alternative<state::HandedOver>(state))
    fault(run, state, ended.end, running ? Blame::program : Blame::cluster);
  return std::nullopt;
}

}  // namespace bellows
