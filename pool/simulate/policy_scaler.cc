// SPDX-License-Identifier: Apache-2.0
#include "pool/simulate/policy_scaler.h"

#include <cmath>
#include <utility>
#include <vector>

namespace bellows::pool {
namespace {

SignalBook::Time time_of(double seconds) {
  return SignalBook::Time(std::chrono::microseconds(std::llround(seconds * 1e6)));
}

double value_of(const std::string& metric, const PoolView& view, double call_s) {
  if (metric == "offered" || metric == "load") return view.offered;
  if (metric == "waiting") return view.waiting;
  return metric.ends_with(".rate") ? view.offered / call_s : view.calls;
}

}  // namespace

std::string PolicyScaler::complaint(const PoolPolicy& policy) {
  if (policy.targets.empty() && policy.thresholds.empty() && !policy.script)
    return "the policy has no targets and no thresholds, so a load changes nothing";
  for (const ThresholdRule& rule : policy.thresholds)
    if (rule.metric != "cpu")
      return "a threshold of " + rule.metric +
             " can't be simulated: what a load does to it is not known; leave it out";
  return "";
}

void PolicyScaler::put(const std::string& member, const PoolView& view, double ready,
                       SignalBook::Time now) {
  for (const TargetRule& rule : policy_.targets) {
    const double whole = value_of(rule.metric, view, call_s_);
    const bool is_part = rule.of == TargetRule::Of::sum;
    (void)signals_.put(member, rule.metric, is_part ? whole / ready : whole, now);
  }
  if (policy_.script)
    for (const std::string& name : policy_.script->names())
      (void)signals_.put(member, name, value_of(name, view, call_s_) / ready, now);
  (void)signals_.put(member, "cpu", view.calls_each, now);
}

PoolChoice PolicyScaler::decide(const PoolView& view) {
  const SignalBook::Time now = time_of(view.at);
  for (const double took : view.started_in) started_.add(MemberStarts::Seconds(took));
  const std::uint32_t ready = view.ready();
  std::vector<PoolMember> members;
  for (const auto& member : view.members) {
    const std::string id = std::to_string(member.id);
    members.push_back({id, member.ready ? PoolMember::State::ready : PoolMember::State::unready,
                       time_of(member.since)});
    if (member.ready) put(id, view, ready, now);
  }
  const SizeDecision decision = decider_.decide(now, signals_, started_, members);
  why_ = explain(decision);
  PoolChoice choice{.wanted = decision.wanted, .chooses = true, .drain = {}};
  for (const std::string& id : decision.drain) {
    choice.drain.push_back(static_cast<std::uint32_t>(std::stoul(id)));
    signals_.forget(id);
  }
  return choice;
}

}  // namespace bellows::pool
