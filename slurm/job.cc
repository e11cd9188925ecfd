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
  if (!tres_per_job.empty()) return gpus_in_gres(tres_per_job);
  return gpus_in_gres(tres_per_node) * (min_nodes == 0 ? 1 : min_nodes);
}

bool SlurmJob::finished() const {
  return state != SlurmState::pending && state != SlurmState::running &&
         state != SlurmState::suspended && state != SlurmState::unknown;
}

// The search for slurm.conf has many ways, up to a question to the DNS: only libslurm knows them
// all.
std::string SlurmJob::shown_id() const {
  if (!asked_as.empty()) return asked_as;
  if (array_task) return fmt::format("{}_{}", array_job, *array_task);
  return waiting_tasks.empty() ? std::to_string(id) : fmt::format("{}_[{}]", id, waiting_tasks);
}

}  // namespace bellows
