// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "common/contract.h"
#include "spank/host.h"

/// In slurmstepd: the job's view of its node, in the order in which Slurm calls.
namespace bellows::spank {

/// init_post_opt, in each slurmstepd: takes part in the job's views while this process lives. None
/// for a job without a contract; one whose contract can't be read gets no task started.
void begin_views(spank_t spank, const Settings& settings,
                 const Result<std::optional<Contract>>& contract);
/// task_init_privileged, in the task's process, as root.
void open_view(spank_t spank, const Settings& settings);
/// task_init, in the task's process, as the user. Ends the process where the view can't be had: the
/// program must not run outside it, and the plugin may be `optional` in plugstack.conf.
void enter_view(spank_t spank, const Settings& settings) noexcept;
/// task_post_fork, in slurmstepd: what end_task() needs of a task that has started.
void begin_task(spank_t spank);
/// task_post_fork, in slurmstepd: the epilogs of its tasks will be in the job's view.
void begin_epilogs(spank_t spank, const Settings& settings);
/// task_exit, in slurmstepd: after the last task of a step that wanted it, its container is saved,
/// unless Slurm has ended one of the tasks.
void end_task(spank_t spank, const Settings& settings);
/// exit: the last slurmstepd of a job on this node ends what processes are left of the job, and
/// removes its views.
void end_views(const Settings& settings);
/// slurmd's start, and each job's prolog: removes what a crash left.
void collect_views(const Settings& settings);

}  // namespace bellows::spank
