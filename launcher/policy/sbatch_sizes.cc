// SPDX-License-Identifier: Apache-2.0
#include "launcher/policy/sbatch_sizes.h"

#include <algorithm>

namespace bellows {
namespace {

using Count = std::optional<std::uint32_t>;

/// The GPUs of one field; nothing when it asks for none, or in a way that can't be counted.
Count gpus_in(const std::optional<std::string>& field) {
  Sizes alone;
  alone.per_job = field;
  const auto found = count_gpus(alone);
  if (!found || !*found) return std::nullopt;
  return (*found)->gpus;
}

bool fixed_nodes(const Sizes& sizes) {
  return sizes.min_nodes && sizes.min_nodes == sizes.max_nodes;
}

/// What _opt_verify of sbatch makes of nodes and tasks.
void derive_tasks(Sizes& sizes, const NodeShape& shape) {
  const bool open = !sizes.tasks && (!sizes.max_nodes || fixed_nodes(sizes));
  const std::uint32_t nodes = std::max<std::uint32_t>(sizes.min_nodes.value_or(1), 1);
  if (open && sizes.tasks_per_node)
    sizes.tasks = nodes * *sizes.tasks_per_node;
  else if (open && (sizes.min_nodes || shape.given) &&
           (shape.sockets || shape.cores || shape.threads))
    sizes.tasks =
        nodes * shape.sockets.value_or(1) * shape.cores.value_or(1) * shape.threads.value_or(1);
  if (!sizes.tasks || !sizes.min_nodes) return;
  if (sizes.max_nodes) sizes.max_nodes = std::min(*sizes.max_nodes, *sizes.tasks);
  if (*sizes.tasks < *sizes.min_nodes) sizes.min_nodes = sizes.max_nodes = sizes.tasks;
}

/// What _test_gres_cnt makes of the GPUs of one type.
void fit_gpus(Sizes& sizes, Count job, Count node, Count task, Count cpus_per_gpu,
              Count& cpus_per_task) {
  if (job && node && *job % *node == 0) sizes.min_nodes = sizes.max_nodes = *job / *node;
  if (task && job && !sizes.tasks && *job % *task == 0) sizes.tasks = *job / *task;
  if (task && !job && sizes.tasks) job = *task * *sizes.tasks;
  if (task && node && !sizes.tasks_per_node && *node % *task == 0)
    sizes.tasks_per_node = *node / *task;
  if (task && cpus_per_gpu && !cpus_per_task) cpus_per_task = *task * *cpus_per_gpu;
  if (job.value_or(0) > 0 && sizes.max_nodes) sizes.max_nodes = std::min(*sizes.max_nodes, *job);
}

}  // namespace

void derive_sizes(Sizes& sizes, const NodeShape& shape, Count cpus_per_gpu, Count& cpus_per_task) {
  derive_tasks(sizes, shape);
  Count job = gpus_in(sizes.per_job);
  const Count node = gpus_in(sizes.per_node);
  const Count task = gpus_in(sizes.per_task);
  const Count per_gpu = sizes.tasks_per_gpu;
  if ((sizes.per_task || per_gpu) && !sizes.tasks && fixed_nodes(sizes)) {
    if (per_gpu)
      sizes.tasks = *sizes.min_nodes * *per_gpu;
    else if (sizes.tasks_per_node)
      sizes.tasks = *sizes.min_nodes * *sizes.tasks_per_node;
    else if (!cpus_per_task)
      sizes.tasks = sizes.min_nodes;
  }
  const Count all = job ? job : node ? Count(*node * sizes.min_nodes.value_or(1)) : std::nullopt;
  if (per_gpu && all) sizes.tasks = *all * *per_gpu;
  if (per_gpu && !all && sizes.tasks) job = *sizes.tasks / *per_gpu;
  fit_gpus(sizes, job, node, task, cpus_per_gpu, cpus_per_task);
}

}  // namespace bellows
