// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "common/container/spec.h"
#include "common/result.h"
#include "spank/container/views.h"

namespace bellows::container {

/// The name under which a container is kept: tasks that ask for the same one share it. One without
/// a name is its step's own, and so has the number of the step's slurmstepd, unless nothing in it
/// can differ for those who come later: then the job's steps share it, for as long as the image is
/// the same file and `home`, where that is mounted, the same directory. To be asked as the user.
std::string container_name(const Spec& spec, const Site& site, pid_t stepd,
                           const std::string& home = {});

/// Whether a step has this container for itself.
bool is_steps_own(const Spec& spec, const Site& site);

/// Notes that the step of `stepd` runs in a container with a name, until forget_own_containers.
/// Raises CAP_DAC_OVERRIDE.
Status note_use(const JobViews& views, const std::string& name, pid_t stepd);

/// Whether the step of `stepd` is noted to run in it. Needs CAP_DAC_OVERRIDE.
Result<bool> is_noted(const JobViews& views, const std::string& name, pid_t stepd);

/// Whether a step of another slurmstepd that lives runs in it. Needs CAP_DAC_OVERRIDE.
Result<bool> is_used(const JobViews& views, const std::string& name, pid_t stepd);

/// The step of `job` whose container a name JOB.STEP stands for, as in pyxis. Nothing: the name is
/// the container's own.
std::optional<std::uint32_t> step_meant(const Spec& spec, std::uint32_t job);

/// Notes that `step`, of `stepd`, runs in a container without a name, until forget_own_containers.
/// Raises CAP_DAC_OVERRIDE.
Status note_step(const JobViews& views, const std::string& name, pid_t stepd, std::uint32_t step);

/// The container in which a step runs that has one without a name. Needs CAP_DAC_OVERRIDE.
/// denied: it runs in none on this node.
Result<std::string> container_of_step(const JobViews& views, std::uint32_t job, std::uint32_t step);

/// Lets go of what is a step's own, of `stepd` and of each slurmstepd that lives no more. Needs a
/// Lease of the job's, and root.
Status forget_own_containers(const std::string& run_dir, std::uint32_t job, pid_t stepd);

}  // namespace bellows::container
