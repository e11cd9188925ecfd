// SPDX-License-Identifier: Apache-2.0
// Supervisor's nodes: those that are drained, lost or back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/text.h"
#include "launcher/run/supervisor.h"

namespace bellows {
namespace {

/// REVERSE_TREE_WIDTH of src/common/reverse_tree.h: on so many nodes and more the slurmstepds of a
/// step tell their ends to each other, and slurmctld hears of all from the first one.
constexpr std::size_t kTreeFrom = 7;

}  // namespace

// What is stopped now goes on from where it is.
bool Supervisor::can_leave() const {
  if (!job_.may_requeue || phase_ != Phase::running || stop_ || fault_pending_) return false;
  return saves_by_itself() || (!joined_.empty() && joined_.size() >= layout_.world());
}

void Supervisor::watch_nodes() {
  const NodeFacts facts{.job = job_,
                        .layout = layout_,
                        .contract = context_.contract ? &*context_.contract : nullptr,
                        .stays = context_.options.on_drain == "stay",
                        .running = phase_ == Phase::running,
                        .can_stop = can_leave()};
  const NodeAdvice advice = nodes_.look(facts, Clock::now());
  if (!advice.text.empty()) say(advice.text);
  if (!advice.stop.empty()) request_stop({advice.stop, advice.gpus, 0});
}

// sbatch --no-kill: a lost node leaves a smaller job. True: it may go on so.
bool Supervisor::take_layout_of(const SlurmJob& job) {
  if (job.nodes == job_.nodes) return true;
  auto layout = RankLayout::of(job);
  if (!layout) return false;
  std::vector<NodeShare> lost;
  std::vector<std::string> names;
  for (const NodeShare& share : job_.nodes)
    if (std::none_of(job.nodes.begin(), job.nodes.end(),
                     [&](const NodeShare& left) { return left.node == share.node; })) {
      lost.push_back(share);
      names.push_back(share.node);
    }
  if (!lost.empty()) cause_ = fmt::format("node {} was lost", fmt::join(names, ","));
  if (!lost.empty()) shrunk_from_ = std::max(shrunk_from_, layout_.nodes().size());
  nodes_.note_lost(lost, Clock::now());
  const bool fits =
      !context_.contract || layout->gpus() == 0 || context_.contract->gpus.contains(layout->gpus());
  if (!fits) {
    say(fmt::format("the job may not run on the {} that its nodes have left",
                    counted(layout->gpus(), "GPU")));
    return false;
  }
  say(fmt::format("the job goes on with {} of {} on {}", layout->gpus(),
                  counted(layout_.gpus(), "GPU"), fmt::join(layout->nodes(), ",")));
  job_ = job;
  layout_ = std::move(*layout);
  agents_well_ = false;
  return true;
}

// slurmctld notes that the lost node's ranks are gone, but ends their step only at the next word of
// one of its slurmstepds: without the tree there is none when the others had ended before, and
// scancel does not help. With it the first one waits for all below it, 60 s and 3 s for each level.
bool Supervisor::never_ends() const { return shrunk_from_ > 0 && shrunk_from_ < kTreeFrom; }

// A step that waits for a lost node holds what the next attempt needs of the others.
bool Supervisor::step_stays() {
  if (shrunk_from_ == 0 || next_ != Next::restart) return false;
  auto steps = slurm_.steps(job_.id);
  return !steps || std::any_of(steps->begin(), steps->end(), [](const SlurmStep& step) {
    return step.name.starts_with(kRanksStep);
  });
}

}  // namespace bellows
