// SPDX-License-Identifier: Apache-2.0
#include "launcher/ranks/rank_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "slurm/releases.h"

namespace bellows {
namespace {

// Without GPUs the tasks fill one node after the other, as far as its CPUs go.
void spread_tasks(std::vector<NodeShare>& shares, std::uint32_t tasks, std::uint32_t cpus_each) {
  for (NodeShare& share : shares) {
    share.gpus = std::min(tasks, std::max(1u, share.cpus / cpus_each));
    tasks -= share.gpus;
  }
  if (tasks > 0) shares.back().gpus += tasks;
}

}  // namespace

Result<RankLayout> RankLayout::of(const SlurmJob& job) {
  if (job.nodes.empty())
    return Error{ErrorKind::invalid, fmt::format("job {} holds no nodes", job.id)};
  RankLayout layout;
  layout.gpus_ = job.gpus();
  layout.cpus_per_task_ = job.asked.cpus_per_task;
  layout.lost_gpus_ = layout.gpus_ < job.requested_gpus();
  std::vector<NodeShare> shares = job.nodes;
  if (layout.gpus_ == 0)
    spread_tasks(shares, std::max<std::uint32_t>(job.asked.num_tasks, 1), job.asked.cpus_per_task);
  for (const NodeShare& share : shares) {
    if (share.gpus == 0) continue;
    for (std::uint32_t i = 0; i < share.gpus; ++i)
      layout.ranks_[share.node].push_back(layout.world_++);
    if (share.cpus < share.gpus * job.asked.cpus_per_task) layout.crowded_ = true;
    layout.shares_.push_back(share);
  }
  layout.trainers_ = layout.world_;
  return layout;
}

Result<RankLayout> RankLayout::one_of(const SlurmJob& job) {
  auto layout = of(job);
  if (!layout) return layout;
  if (job.nodes.size() > 1)
    return Error{
        ErrorKind::denied,
        fmt::format("job {} has {} nodes, and the learners of a parameter server share the "
                    "memory of one: submit it with --nodes=1",
                    job.id, job.nodes.size())};
  NodeShare& share = layout->shares_.front();
  share.gpus = 1;
  layout->one_ = true;
  layout->crowded_ = false;
  layout->cpus_per_task_ = share.cpus;
  layout->world_ = 1;
  layout->ranks_[share.node] = {0};
  return layout;
}

std::vector<std::string> RankLayout::nodes() const {
  std::vector<std::string> names;
  for (const NodeShare& share : shares_) names.push_back(share.node);
  return names;
}

std::vector<std::string> RankLayout::rank_options() const {
  std::vector<std::string> places;
  for (const NodeShare& share : shares_) places.insert(places.end(), share.gpus, share.node);
  // No --overlap here: with it, 22.05 counts a step's GPUs wrongly when nodes hold different
  // numbers of them ("step's > job's for node 1") and refuses the step.
  std::vector<std::string> options = {fmt::format("--ntasks={}", world_),
                                      "--distribution=arbitrary",
                                      fmt::format("--nodelist={}", fmt::join(places, ","))};
  if (!kSrunCountsNodes) options.push_back(fmt::format("--nodes={}", shares_.size()));
  // A step asks for as many GPUs as its job did at first, which are more than a job has that lost a
  // node. What the job asked for each task is less than what one rank shall have.
  if (lost_gpus_ || (one_ && gpus_ > 0)) options.push_back(fmt::format("--gpus={}", gpus_));
  if (crowded_)
    options.push_back("--overcommit");
  else if (cpus_per_task_ > 1)
    options.push_back(fmt::format("--cpus-per-task={}", cpus_per_task_));
  return options;
}

std::vector<std::string> RankLayout::agent_options() const {
  return {"--overlap",
          fmt::format("--nodes={}", shares_.size()),
          fmt::format("--ntasks={}", shares_.size()),
          "--ntasks-per-node=1",
          fmt::format("--nodelist={}", fmt::join(nodes(), ",")),
          "--gres=none",
          "--mpi=none",
          "--overcommit"};
}

}  // namespace bellows
