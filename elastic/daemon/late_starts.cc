// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/late_starts.h"

#include <utility>

#include "slurm/requeue.h"

namespace bellows {

void LateStarts::bring_forward(Slurm& slurm, const std::vector<SlurmJob>& elastic,
                               std::time_t now) {
  std::map<std::uint32_t, std::time_t> busy;
  for (const SlurmJob& job : elastic) {
    if (job.state != SlurmState::pending || job.completing) {
      busy[job.id] = now;
      continue;
    }
    const auto before = busy_.find(job.id);
    if (before == busy_.end()) continue;
    // Only Slurm sets it so that it counts from the moment at which the job was done.
    const std::time_t counted_from = job.times.begin - delay_;
    if (counted_from < before->second || counted_from > now) continue;
    SlurmJobChange change;
    // A node that was set down may only have been slow, and ends what is left of the run.
    change.begin_time = now + requeue_clock::kAfterKilledLauncher;
    if (!slurm.change(job, change).ok()) busy[job.id] = before->second;
  }
  busy_ = std::move(busy);
}

}  // namespace bellows
