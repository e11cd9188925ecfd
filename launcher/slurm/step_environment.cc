// SPDX-License-Identifier: Apache-2.0
#include "launcher/slurm/step_environment.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "common/launch_kind.h"
#include "common/variables.h"

namespace bellows {

std::vector<std::string> srun_environment(const char* const* environment) {
  static constexpr std::string_view kStale[] = {"SLURM_NTASKS",
                                                "SLURM_NPROCS",
                                                "SLURM_NTASKS_PER_NODE",
                                                "SLURM_NTASKS_PER_GPU",
                                                "SLURM_TASKS_PER_NODE",
                                                "SLURM_NTASKS_PER_CORE",
                                                "SLURM_NTASKS_PER_SOCKET",
                                                "SLURM_GPUS",
                                                "SLURM_GPUS_PER_NODE",
                                                "SLURM_GPUS_PER_TASK",
                                                "SLURM_GPUS_PER_SOCKET",
                                                "SLURM_GPUS_ON_NODE",
                                                "SLURM_GRES",
                                                "SLURM_DISTRIBUTION",
                                                "SLURM_HOSTFILE",
                                                "SLURM_OVERCOMMIT",
                                                "SLURM_OVERLAP",
                                                "SLURM_EXACT",
                                                "SLURM_EXCLUSIVE",
                                                "SLURM_WHOLE",
                                                "SLURM_CPUS_PER_TASK",
                                                "SRUN_CPUS_PER_TASK",
                                                "SLURM_CPUS_PER_GPU",
                                                "SLURM_CPU_BIND",
                                                "SLURM_GPU_BIND",
                                                "SLURM_TRES_PER_TASK",
                                                "SLURM_STEP_GRES",
                                                "SLURM_KILL_BAD_EXIT",
                                                "SLURM_MPI_TYPE",
                                                "SLURM_NNODES",
                                                "SLURM_NODELIST",
                                                "SLURM_LABELIO",
                                                "SLURM_UNBUFFEREDIO",
                                                "SLURM_STDINMODE",
                                                "SLURM_STDOUTMODE",
                                                "SLURM_WAIT",
                                                "SLURM_IMMEDIATE",
                                                "SLURM_JOB_NAME",
                                                "SLURM_MULTI_PROG",
                                                "SLURM_THREADS",
                                                "SLURM_RELATIVE",
                                                "SLURM_EXPORT_ENV",
                                                "SLURM_HINT",
                                                "SLURM_TASK_PROLOG",
                                                "SLURM_TASK_EPILOG",
                                                kLaunchVariable,
                                                kMasterAddrVariable,
                                                kMasterPortVariable,
                                                kBindVariable,
                                                kBatchVariable,
                                                kBatchRangeVariable};
  std::vector<std::string> kept;
  for (; *environment; ++environment) {
    std::string_view entry = *environment;
    std::string_view name = entry.substr(0, entry.find('='));
    if (std::find(std::begin(kStale), std::end(kStale), name) == std::end(kStale))
      kept.emplace_back(entry);
  }
  return kept;
}

std::vector<std::string> host_step_environment(const char* const* environment) {
  std::vector<std::string> kept = srun_environment(environment);
  std::erase_if(kept, [](const std::string& entry) {
    return std::any_of(std::begin(kContainerPrefixes), std::end(kContainerPrefixes),
                       [&](const char* prefix) { return entry.starts_with(prefix); });
  });
  // As a variable: a srun without the plugin would refuse the option.
  kept.emplace_back("BELLOWS_CONTAINER_IMAGE=/");
  return kept;
}

}  // namespace bellows
