// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/slurm/records.h"
#include "slurm/interface.h"

namespace bellows {

/// What can be found of a job that may long be over, and where its files are.
struct JobPlace {
  std::uint32_t id = 0;
  std::optional<SlurmJob> job;       ///< while slurmctld knows it
  bool unreachable = false;          ///< slurmctld did not answer
  std::vector<SlurmRun> runs;        ///< of accounting, oldest first
  std::string checkpoint_dir;        ///< empty: unknown
  std::vector<std::string> missing;  ///< sentences on what could not be asked
};

enum class Ask {
  if_needed,  ///< accounting only for a job that slurmctld does not know
  always,
};

/// `slurm` null: without Slurm. `checkpoint_dir` empty: what the job's record says. not_found:
/// nobody knows the job, and no directory was given; unavailable: and slurmctld did not answer.
Result<JobPlace> find_job(Slurm* slurm, const JobName& name, const std::string& checkpoint_dir,
                          Ask accounting);

}  // namespace bellows
