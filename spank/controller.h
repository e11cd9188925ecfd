// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/result.h"
#include "slurm/job_size.h"
#include "spank/container/views.h"
#include "spank/environment.h"

namespace bellows::spank {

/// What slurmctld said of a job, at its time `clock`. A value.
struct JobInfo {
  bool running = false;     ///< exactly RUNNING: not requeued, completing, cancelled or timed out
  bool requeued = false;    ///< waiting for another run, and not held
  bool completing = false;  ///< slurmctld still ends the last run
  std::int64_t begin = 0;   ///< earliest start; 0: none was set
  std::uint32_t restarts = 0;
  std::string batch_host;
  std::string account;
  std::string admin_comment;
  HeldSize held;
  AskedSize asked;
  std::int64_t clock = 0;
};

/// To be called before anything else here in a job's prolog, as often as wanted: from 23.02 on the
/// process that Slurm runs there has not done it, and any question to slurmctld ends that process,
/// which drains the node.
void init_slurm();

/// Asks slurmctld through the Slurm functions of the process that loaded the plugin. not_found:
/// slurmctld doesn't know the job. unavailable: it could not be asked, which is never a reason to
/// act. Blocks up to Slurm's message timeout.
Result<JobInfo> read_job(std::uint32_t job);

/// The same, where AdminComment has the contract that slurmctld keeps for the job in its
/// spank_job_env, or the job has none: whoever has put something else in its place. As root, whose
/// updates of AdminComment job_submit/bellows corrects.
Result<JobInfo> read_promise(std::uint32_t job);

/// When a job runs again, by slurmctld's clock, and with how many GPUs (none: as many as before).
struct NextStart {
  std::int64_t start = 0;
  std::optional<std::uint32_t> gpus;
  AskedSize asked;  ///< with gpus
};

/// Requeues a job only if it is running at that moment. Needs the rights of root or of the job's
/// owner.
Status requeue_running(std::uint32_t job);

/// Sets the next run of a job that waits, in one update. As the job's owner, who is bound by the
/// policy and the site's rules, since the files that name the size belong to the owner.
Status set_next_run(std::uint32_t job, const NextStart& next, container::JobOwner owner);

}  // namespace bellows::spank
