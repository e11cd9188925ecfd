// SPDX-License-Identifier: Apache-2.0
// Supervisor's nodes: those that are drained, lost or back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "launcher/exit_status.h"
#include "launcher/supervisor.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

/// Nobody drains a node in a hurry, and slurmctld has better to do.
constexpr auto kLookEvery = 15s;
/// A node that comes back and goes again would cost the job a requeue each time.
constexpr auto kSmallAtLeast = 60s;

const NodeReport* find_node(const std::vector<NodeReport>& nodes, const std::string& name) {
  for (const NodeReport& node : nodes)
    if (node.name == name) return &node;
  return nullptr;
}

}  // namespace

// What is stopped now goes on from where it is.
bool Supervisor::can_leave() const {
  if (!job_.may_requeue || phase_ != Phase::running || stop_ || fault_pending_) return false;
  return saves_by_itself() || (!joined_.empty() && joined_.size() >= layout_.world());
}

void Supervisor::watch_nodes() {
  const auto now = Clock::now();
  if (auto reports = nodes_.poll(now)) {
    if (leaving_.empty())
      judge_nodes(*reports);
    else
      leave_nodes(*reports);
  }
  if (phase_ != Phase::running || nodes_.asking() || now < next_look_) return;
  next_look_ = now + kLookEvery;
  std::vector<std::string> names = layout_.nodes();
  for (const NodeShare& lost : lost_nodes_) names.push_back(lost.node);
  leaving_.clear();
  nodes_.ask(names, now);
}

void Supervisor::judge_nodes(const std::vector<NodeReport>& reports) {
  std::vector<std::string> draining;
  for (const std::string& name : layout_.nodes())
    if (const NodeReport* node = find_node(reports, name); node && node->draining())
      draining.push_back(name);
  if (draining.empty()) {
    drain_told_ = false;
    return grow_back(reports);
  }
  const bool stays = context_.options.on_drain == "stay";
  const bool bound = std::any_of(draining.begin(), draining.end(), [this](const std::string& name) {
    return std::find(job_.required_nodes.begin(), job_.required_nodes.end(), name) !=
           job_.required_nodes.end();
  });
  if (!stays && !bound && can_leave()) {
    leaving_ = draining;
    return nodes_.ask({}, Clock::now());
  }
  if (drain_told_) return;
  drain_told_ = true;
  const std::string what = fmt::format("{} is being drained: ", fmt::join(draining, ","));
  say(what + (stays   ? "the job stays, as --on-drain says"
              : bound ? "the job stays, since it asks for that node"
                      : "the job stays until it has something to go on from"));
}

// Where Slurm could place the job's ranks now decides its size; the answer may be old by the time
// of the requeue, and the job then waits as any other.
void Supervisor::leave_nodes(const std::vector<NodeReport>& reports) {
  const std::vector<std::string> leaving = std::exchange(leaving_, {});
  if (!can_leave()) return;
  Departure departure{layout_.gpus(), 0, 0};
  for (const NodeShare& share : job_.nodes)
    if (std::find(leaving.begin(), leaving.end(), share.node) != leaving.end())
      departure.on_leaving += share.gpus;
  for (const NodeReport& node : reports)
    if (node.usable() && node.partitions.contains(job_.partition))
      departure.free += node.gpus_free();
  Stop stop{fmt::format("drain of {}", fmt::join(leaving, ",")), std::nullopt, 0};
  if (context_.contract && departure.held > 0)
    stop.gpus = size_after(
        departure, [this](std::uint32_t gpus) { return context_.contract->gpus.contains(gpus); });
  say(fmt::format("{}: the job stops at a checkpoint and leaves", stop.reason));
  request_stop(std::move(stop));
}

// sbatch --no-kill: a lost node leaves a smaller job. True: it may go on so.
bool Supervisor::take_layout_of(const SlurmJob& job) {
  if (job.nodes == job_.nodes) return true;
  auto layout = RankLayout::of(job);
  if (!layout) return false;
  std::vector<std::string> lost;
  for (const NodeShare& share : job_.nodes)
    if (std::none_of(job.nodes.begin(), job.nodes.end(),
                     [&](const NodeShare& left) { return left.node == share.node; })) {
      lost.push_back(share.node);
      lost_nodes_.push_back(share);
    }
  if (!lost.empty()) cause_ = fmt::format("node {} was lost", fmt::join(lost, ","));
  shrunk_at_ = Clock::now();
  const bool fits =
      !context_.contract || layout->gpus() == 0 || context_.contract->gpus.contains(layout->gpus());
  if (!fits) {
    say(fmt::format("{} GPUs are left, and the job may not run on so many", layout->gpus()));
    return false;
  }
  say(fmt::format("the job goes on with {} of {} GPUs on {}", layout->gpus(), layout_.gpus(),
                  fmt::join(layout->nodes(), ",")));
  job_ = job;
  layout_ = std::move(*layout);
  agents_well_ = false;
  return true;
}

// Requeued, the job gets what it asked for at first. That is done only when all that it lost is
// there and free, so that it hardly waits.
void Supervisor::grow_back(const std::vector<NodeReport>& reports) {
  if (lost_nodes_.empty() || Clock::now() - shrunk_at_ < kSmallAtLeast || !can_leave()) return;
  for (const NodeShare& lost : lost_nodes_) {
    const NodeReport* node = find_node(reports, lost.node);
    if (!node || !node->usable() || node->gpus_free() < lost.gpus) return;
  }
  std::vector<std::string> names;
  for (const NodeShare& lost : lost_nodes_) names.push_back(lost.node);
  const std::string what = fmt::format("growing back to {}", fmt::join(names, ","));
  say(what + ": the job stops at a checkpoint");
  request_stop({what, std::nullopt, 0});
}

}  // namespace bellows
