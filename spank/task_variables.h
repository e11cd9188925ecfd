// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "common/container/spec.h"
#include "common/result.h"
#include "spank/container/image_variables.h"
#include "spank/host.h"

/// The environment of a task's program in a container. All of it in task_init.
namespace bellows::spank {

Status set_variable(spank_t spank, const std::string& name, const std::string& value);
Status set_variables(spank_t spank, const container::Variables& variables);

/// Variables that begin with the first path, of PMIx's files, must name the second, where these are
/// now. Both empty: they are where they were.
Status move_pmix(spank_t spank, const std::pair<std::string, std::string>& moved);

/// What the container adds: the image's variables take precedence over the job's, except for those
/// that the user wants to keep. Languages that are not kept are gone from the job's.
container::Variables container_variables(spank_t spank, const container::Spec& spec,
                                         const container::Site& site);

/// The same, after the image's entrypoint, which runs in between.
Result<container::Variables> entrypoints_variables(spank_t spank, const container::Spec& spec,
                                                   const container::Variables& variables);

/// What a TaskProlog said, as Slurm would have obeyed it, had it run the script.
Status obey_prolog(spank_t spank, const std::string& said);

}  // namespace bellows::spank
