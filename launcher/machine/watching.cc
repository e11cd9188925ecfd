// SPDX-License-Identifier: Apache-2.0
// What a run looks at from time to time: its time limit and its nodes.
#include <fmt/core.h>

#include "launcher/machine/moves.h"

namespace bellows {
namespace {

/// A stop makes sense only if the ranks can save, and only once.
bool can_stop(const Run& run, const State& state) {
  if (!std::holds_alternative<state::Running>(state) || run.stop) return false;
  return run.saves_by_itself() || run.all_joined();
}

NodeFacts node_facts(const Run& run, const State& state) {
  // What is stopped now continues from where it is.
  const bool joined = run.saves_by_itself() || !run.attempt.joined.empty();
  return {
      .job = run.job,
      .layout = run.layout,
      .contract = run.rules.contract ? &*run.rules.contract : nullptr,
      .stays = run.rules.stays,
      .running = std::holds_alternative<state::Running>(state),
      .can_stop = run.job.kind.may_requeue && !run.fault.pending && joined && can_stop(run, state)};
}

}  // namespace

Move watch_time(Run& run, State& state) {
  if (run.time.is_due(run.seconds())) run.act(action::AskLimits{});
  const auto limits = run.time.reckon(run.seconds());
  return limits ? limits_known(run, state, *limits) : Move();
}

Move limits_known(Run& run, State& state, const JobLimits& limits) {
  if (const std::string complaint = run.time.complaint(run.rules.own); !complaint.empty())
    run.say(complaint);
  const OwnCheckpoint* own = run.saves_by_itself() ? &run.rules.own : nullptr;
  const double lead = run.time.lead(limits, own, run.seconds());
  if (!can_stop(run, state)) return std::nullopt;
  if (limits.preempted) return request_stop(run, state, Stop{.reason = "preemption"});
  if (static_cast<double>(limits.left) > lead) return std::nullopt;
  run.say(fmt::format("the time limit is reached in {} s, and a stop may take {:.0f} s",
                      limits.left, lead));
  run.doubts.time_limit_near = true;
  return request_stop(run, state, Stop{.reason = "time limit"});
}

void watch_nodes(Run& run, const State& state) {
  if (auto names = run.nodes.look(node_facts(run, state), run.now))
    run.act(action::AskNodes{std::move(*names)});
}

Move nodes_known(Run& run, State& state, const std::vector<NodeReport>& reports) {
  const NodeAdvice advice = run.nodes.advise(reports, node_facts(run, state), run.now);
  if (!advice.text.empty()) run.say(advice.text);
  if (advice.ask_all) run.act(action::AskNodes{});
  if (advice.stop.empty()) return std::nullopt;
  return request_stop(run, state, Stop{.reason = advice.stop, .gpus = advice.gpus});
}

}  // namespace bellows
