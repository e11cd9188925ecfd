// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "spank/container/gpu_nodes.h"

/// Whether Slurm's device cgroup keeps a task from the GPUs of others.
namespace bellows::container {

/// How many of this node's GPUs Slurm gave the step, from SLURM_GPUS_ON_NODE as it stands in
/// task_init; unset: none.
///
/// When that can be believed (Slurm 22.05.8). slurmstepd writes it itself, from the credential that
/// slurmctld signed, before any plugin's or user's code of the task runs: for the batch script and
/// an interactive step from the job's GRES on this node (slurmstepd.c:778, gres_g_job_set_env), for
/// every other step from the step's (gres_g_step_set_env). Both end in gres_common_gpu_set_env(),
/// which overwrites the variable with the number of GPUs, or unsets it when there are none (a step
/// with --gres=none, a job without GPUs). Shards and MPS count as the GPUs they lie on. TaskProlog,
/// which could change it, runs later.
/// - SLURM_STEP_GPUS and SLURM_JOB_GPUS do not serve: the first is left alone in a batch script,
///   the second in a step, so there they are whatever the user wrote; and they hold positions in
///   gres.conf, not minors.
/// - Tasks bound to GPUs (--gpus-per-task, --gpu-bind): task.c:422 rewrites SLURM_STEP_GPUS for the
///   task, but names the first task's GPU for the second one too (as seen with ConstrainDevices),
///   and leaves this variable at the step's number. So a task is held against its step's number:
///   what it could open beyond its own would be its job's.
/// - Where slurmstepd would unset it, it can be forged: unsetenvp() leaves the second of two
///   adjacent entries of the same name, which a client of one's own can send (srun drops one).
///   And where GresTypes has no gpu, nothing touches it. So the number is bounded by `most`, what
///   the job's contract says of it. A number that was set is true if it is read with
///   spank_getenv(), which finds the first entry; a shell may find a later one.
Result<std::uint64_t> gpus_given(std::optional<std::string_view> gpus_on_node,
                                 std::optional<std::uint64_t> most);

/// An error (denied) that tells the user and the administrator what is wrong and what to set: when
/// more GPUs can be opened than were given, or when a given one is closed by its file's mode.
///
/// What it can't see: a step that was given all GPUs of a node (nothing is left to be fenced from),
/// MIG, where many instances, each counted as a GPU by Slurm, share one GPU's node, and a GPU whose
/// node is made only later (gres.conf's File= has slurmd insist on the nodes that it names). Nor
/// does it look at /dev/dri, by which nvidia-drm lets the members of `video` and `render` draw: no
/// job's user should be one.
Status check_fence(const std::vector<GpuNode>& nodes, std::uint64_t given);

}  // namespace bellows::container
