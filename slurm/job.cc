// SPDX-License-Identifier: Apache-2.0
#include "slurm/job.h"

#include <fmt/core.h>

#include <algorithm>

#include "slurm/gres.h"

namespace bellows {

const char* slurm_state_name(SlurmState state) {
  static constexpr const char* kNames[] = {
      "PENDING",   "RUNNING",   "SUSPENDED", "COMPLETED", "CANCELLED",     "FAILED", "TIMEOUT",
      "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",  "OUT_OF_MEMORY", "UNKNOWN"};
  return kNames[static_cast<int>(state)];
}

std::uint32_t SlurmJob::gpus() const {
  std::uint32_t sum = 0;
  for (const NodeShare& share : nodes) sum += share.gpus;
  return sum;
}

std::uint32_t SlurmJob::requested_gpus() const {
  if (!asked.tres_per_job.empty()) return gpus_in_gres(asked.tres_per_job);
  if (!asked.tres_per_node.empty())
    return gpus_in_gres(asked.tres_per_node) * (asked.min_nodes == 0 ? 1 : asked.min_nodes);
  return gpus_in_gres(asked.tres);
}

bool SlurmJob::finished() const {
  return state != SlurmState::pending && state != SlurmState::running &&
         state != SlurmState::suspended && state != SlurmState::unknown;
}

std::string SlurmJob::shown_id() const {
  if (!asked_as.empty()) return asked_as;
  if (array.task) return fmt::format("{}_{}", array.job, *array.task);
  return array.waiting.empty() ? std::to_string(id) : fmt::format("{}_[{}]", id, array.waiting);
}

}  // namespace bellows
