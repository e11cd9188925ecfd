// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/node_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace bellows {
namespace {

using namespace std::chrono_literals;

/// A drain is never urgent, and asking more often would burden slurmctld.
constexpr auto kLookEvery = 15s;
/// A slurmctld that takes longer is not asked for this once more.
constexpr auto kAnswersWithin = 30s;
/// A node that returns and is lost again would cost the job a requeue each time.
constexpr auto kSmallAtLeast = 60s;

const NodeReport* find_node(const std::vector<NodeReport>& nodes, const std::string& name) {
  for (const NodeReport& node : nodes)
    if (node.name == name) return &node;
  return nullptr;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::optional<std::vector<std::string>> NodePolicy::look(const NodeFacts& facts,
                                                         Clock::time_point now) {
  if (!facts.running || now < next_look_) return std::nullopt;
  // All nodes are being asked for: that answer must not be taken for another.
  if (!leaving_.empty() && now - asked_all_ < kAnswersWithin) return std::nullopt;
  next_look_ = now + kLookEvery;
  std::vector<std::string> names = facts.layout.nodes();
  for (const NodeShare& lost : lost_) names.push_back(lost.node);
  leaving_.clear();
  return names;
}

NodeAdvice NodePolicy::advise(const std::vector<NodeReport>& reports, const NodeFacts& facts,
                              Clock::time_point now) {
  return leaving_.empty() ? judge(reports, facts, now) : leave(reports, facts);
}

void NodePolicy::note_lost(const std::vector<NodeShare>& shares, Clock::time_point now) {
  lost_.insert(lost_.end(), shares.begin(), shares.end());
  shrunk_at_ = now;
}

NodeAdvice NodePolicy::judge(const std::vector<NodeReport>& reports, const NodeFacts& facts,
                             Clock::time_point now) {
  std::vector<std::string> draining;
  for (const std::string& name : facts.layout.nodes())
    if (const NodeReport* node = find_node(reports, name); node && node->draining())
      draining.push_back(name);
  if (draining.empty()) {
    told_ = false;
    return grow_back(reports, facts, now);
  }
  const bool bound = std::any_of(
      draining.begin(), draining.end(),
      [&facts](const std::string& name) { return contains(facts.job.asked.required_nodes, name); });
  if (!facts.stays && !bound && facts.can_stop) {
    leaving_ = draining;
    asked_all_ = now;
    return {"", "", {}, true};
  }
  if (std::exchange(told_, true)) return {};
  const char* why = facts.stays ? "the job stays, as --on-drain says"
                    : bound     ? "the job stays, since it asks for that node"
                                : "the job stays until it has something to continue from";
  return {fmt::format("{} is being drained: {}", fmt::join(draining, ","), why), "", {}, false};
}

// Where Slurm could place the job's ranks now decides its size; the answer may be old by the time
// of the requeue, and the job then waits as any other.
NodeAdvice NodePolicy::leave(const std::vector<NodeReport>& reports, const NodeFacts& facts) {
  const std::vector<std::string> leaving = std::exchange(leaving_, {});
  if (!facts.can_stop) return {};
  Departure departure{facts.layout.gpus(), 0, 0};
  for (const NodeShare& share : facts.job.nodes)
    if (contains(leaving, share.node)) departure.on_leaving += share.gpus;
  for (const NodeReport& node : reports)
    if (node.usable() && node.partitions.contains(facts.job.partition))
      departure.free += node.gpus_free();
  NodeAdvice advice;
  advice.stop = fmt::format("drain of {}", fmt::join(leaving, ","));
  advice.text = advice.stop + ": the job stops at a checkpoint and leaves";
  if (facts.contract && departure.held > 0)
    advice.gpus = size_after(
        departure, [&facts](std::uint32_t gpus) { return facts.contract->gpus.contains(gpus); });
  return advice;
}

// Requeued, the job gets what it asked for at first. That is done only when all that it lost is
// there and free, so that it hardly waits.
NodeAdvice NodePolicy::grow_back(const std::vector<NodeReport>& reports, const NodeFacts& facts,
                                 Clock::time_point now) const {
  if (lost_.empty() || now - shrunk_at_ < kSmallAtLeast || !facts.can_stop) return {};
  std::vector<std::string> names;
  for (const NodeShare& lost : lost_) {
    const NodeReport* node = find_node(reports, lost.node);
    if (!node || !node->usable() || node->gpus_free() < lost.gpus) return {};
    names.push_back(lost.node);
  }
  NodeAdvice advice;
  advice.stop = fmt::format("growing back to {}", fmt::join(names, ","));
  advice.text = advice.stop + ": the job stops at a checkpoint";
  return advice;
}

}  // namespace bellows
