// SPDX-License-Identifier: Apache-2.0
#include "spank/step_prolog.h"

#include <slurm/slurm.h>

#include <utility>

/// slurmstepd's own, by Slurm's library; a program of another kind that loads the plugin has none.
extern "C" {
extern slurm_conf_t slurm_conf __attribute__((weak));
}

namespace bellows::spank {

container::PrologRun take_prolog(spank_t spank, std::uint32_t seconds) {
  container::PrologRun run;
  char** variables = nullptr;
  if (&slurm_conf == nullptr || slurm_conf.task_prolog == nullptr ||
      spank_get_item(spank, S_JOB_ENV, &variables) != ESPANK_SUCCESS)
    return run;
  // Never freed: Slurm's to free, in a process that ends with exec.
  run.path = std::exchange(slurm_conf.task_prolog, nullptr);
  run.seconds = seconds;
  for (char** entry = variables; *entry != nullptr; ++entry) run.environment.emplace_back(*entry);
  run.environment.emplace_back("SLURM_SCRIPT_CONTEXT=prolog_task");
  return run;
}

}  // namespace bellows::spank
