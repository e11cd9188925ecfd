// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

/// The names by which submission, slurmctld, the nodes and the launcher tell one another of a job.
namespace bellows {

/// How the names of the variables begin in which sbatch, salloc and srun hand Bellows' options on.
/// Slurm makes it of the plugin's name.
inline constexpr std::string_view kOptionPrefix = "_SLURM_SPANK_OPTION_bellows_";

/// What Slurm puts before the names of spank_job_env in a process's environment. sbatch takes an
/// option from such a variable, too.
inline constexpr const char* kExported = "SLURM_SPANK_";

/// Of the BELLOWS_ variables in a job's environment, those that say whose job it is and what it was
/// promised. The nodes set them, so nobody may submit a job with those of another one. The rest are
/// the user's own settings.
inline constexpr const char* kJobVariables[] = {
    "BELLOWS_CONTRACT",          "BELLOWS_TENANT",       "BELLOWS_FRAMEWORK",
    "BELLOWS_FRAMEWORK_VERSION", "BELLOWS_GPUS_RANGE",   "BELLOWS_CHECKPOINT_DIR",
    "BELLOWS_RUN_DIR",           "BELLOWS_MODEL_SOCKET",
};

/// How the names of the variables begin that say in what container a step runs, in the order in
/// which they are asked.
inline constexpr const char* kContainerPrefixes[] = {"BELLOWS_CONTAINER_", "PYXIS_CONTAINER_"};

/// In the environment of an attempt's ranks: names the attempt, so that its remaining processes can
/// be found.
inline constexpr const char* kAttemptVariable = "BELLOWS_ATTEMPT";

/// Where the job's programs reach bellows-modeld, in a job with models. The library reads it too.
inline constexpr const char* kModelSocketVariable = "BELLOWS_MODEL_SOCKET";

/// In the environment of ranks: the global batch that the job was ordered to use, and the range of
/// batches in its contract.
inline constexpr const char* kBatchVariable = "BELLOWS_BATCH";
inline constexpr const char* kBatchRangeVariable = "BELLOWS_BATCH_RANGE";

}  // namespace bellows
