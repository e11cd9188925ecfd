// SPDX-License-Identifier: Apache-2.0
// What the agents say, and their end.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/base/exit_status.h"
#include "launcher/machine/moves.h"

namespace bellows {
namespace {

using Kind = Event::Kind;
using namespace std::chrono_literals;

/// srun may report the end of an agent this long after the ranks that failed because of it.
constexpr auto kDiesWithRanks = 5s;

// Until every agent has the new attempt, what they say may be of the one before.
bool is_stale(const Run& run, const State& state, const Event& event) {
  if (event.kind == Kind::error)
    return !run.attempt.decision && (event.cmd == "gate" || event.cmd == "stop");
  return is_beginning(state) && event.kind != Kind::hello && event.kind != Kind::found &&
         event.kind != Kind::ready;
}

void heard_gate(Run& run, const Event& event) {
  if (!run.attempt.decision || !run.stop) return;
  for (const Command& command : run.attempt.decision->handle(event)) {
    if (command.kind == Command::Kind::stop) {
      run.say(fmt::format("all ranks stop at step {} ({})", *command.step, run.stop->reason));
      const nlohmann::json reply = {{"event", "stopping"}, {"step", *command.step}};
      run.reply(run.stop->client, reply.dump());
    }
    run.send(command);
  }
}

// Slurm tells every step of a preemption, and `scancel --signal` reaches steps only.
Move heard_progress(Run& run, State& state, const Event& event) {
  note_progress(run, event, std::holds_alternative<state::Running>(state));
  // The other agents of a step in which one died may be ended with SIGTERM too: Slurm knows more.
  if (event.signal == "TERM") run.doubts.ask_job = true;
  Move move;
  if (event.signal == "USR1") move = signal_usr1(run, state);
  run.saves.note_unwritten(event, run.now);
  return move;
}

// Ranks that have begun from it have saved nothing, since a save takes all ranks.
void heard_bad_step(Run& run, const State& state, const Event& bad) {
  const std::uint64_t step = bad.step.value_or(0);
  if (run.choice.note_bad(bad)) run.act(action::FindStepBelow{step});
  fault(run, state,
        fmt::format("rank {} on {} cannot continue from step {}: {}", bad.rank, bad.node, step,
                    bad.error),
        Blame::storage);
}

void heard_error(Run& run, const State& state, const Event& event) {
  if (event.cmd == "commit") return note_save_error(run, event);
  run.say(fmt::format("agent on {}: {}", event.node, event.error));
  // An old checkpoint that could not be removed takes up space, but no work is lost.
  if (event.cmd == "retention") return;
  run.agents.well = false;
  run.agents.said_why = true;
  // Another run owns the directory now. Which of the two is the current one, Slurm says when asked.
  const Blame blame = event.error_kind == ErrorKind::io     ? Blame::storage
                      : event.error_kind == ErrorKind::busy ? Blame::cluster
                                                            : Blame::program;
  fault(run, state, "an agent failed: " + event.error, blame);
}

}  // namespace

bool is_beginning(const State& state) {
  return std::holds_alternative<state::Greeting>(state) ||
         std::holds_alternative<state::Finding>(state) ||
         std::holds_alternative<state::Restoring>(state);
}

Move agent_said(Run& run, State& state, const Event& event) {
  if (!run.agents.there || is_stale(run, state, event)) return std::nullopt;
  if (auto all = run.attempt.restored.add(event, run.layout.world()))
    run.record("PROCESSING", *all);
  auto* greeting = std::get_if<state::Greeting>(&state);
  auto* restoring = std::get_if<state::Restoring>(&state);
  const bool finding = std::holds_alternative<state::Finding>(state);
  switch (event.kind) {
    case Kind::hello:
      return greeting ? agent_greeted(run, *greeting, event.node) : Move();
    case Kind::found:
      return finding ? step_found(run, event) : Move();
    case Kind::ready:
      return restoring ? agent_ready(run, *restoring, event) : Move();
    case Kind::restore_error:
      heard_bad_step(run, state, event);
      return std::nullopt;
    case Kind::restored:
      return std::nullopt;
    case Kind::gated:
      heard_gate(run, event);
      return std::nullopt;
    case Kind::progress:
      return heard_progress(run, state, event);
    case Kind::rank:
      note_rank(run, event);
      break;
    case Kind::error:
      heard_error(run, state, event);
      break;
    case Kind::save_error:
      note_save_error(run, event);
      break;
    default:
      break;
  }
  const auto* clearing = std::get_if<state::Clearing>(&state);
  const bool leaves =
      clearing && (clearing->next == state::Next::complete || clearing->next == state::Next::leave);
  const bool ends = leaves || std::holds_alternative<state::Forgotten>(state) ||
                    std::holds_alternative<state::HandedOver>(state);
  return note_commit(run, event, !ends);
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
