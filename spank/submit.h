// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spank/host.h"

namespace bellows::spank {

/// sbatch, salloc and srun: registers --framework, --gpus-range, --batch-range, --job-class,
/// --model, --model-on, --pool and the --container options. slurmstepd must register them too, or
/// it would complain of options it does not know.
void register_options(spank_t spank);

/// Inside a job: forgets the options of that job, so that a nested sbatch or srun has only its own.
void forget_outer_job();

/// Puts what BELLOWS_CONTAINER_ and PYXIS_CONTAINER_ variables say where Slurm looks for options
/// before it reads the command line.
void export_variables();

/// In sbatch, after all options were read: a site that has batch scripts run on the host has no
/// container to save.
void check_save(const Settings& settings);

/// After all options were read: ends the command if one of them, or such a variable, is wrong, with
/// our sentence alone and the status that Slurm itself would end with.
void end_if_wrong();

/// After all options were read: passes on what the --container options say together, to slurmctld
/// and, in srun, to the step.
void hand_on_container(spank_t spank);

/// In sbatch: says that the site has batch scripts run on the host, though there is an image.
void tell_place_of_script(const Settings& settings);

/// sbatch and salloc inside a job: forgets that job's BELLOWS_ variables as well.
void forget_outer_contract();

/// srun inside a job with a contract: sets the size variables to what the job holds, before srun
/// reads them. Anything that fails leaves the environment as it is.
void correct_size_for_srun(const Settings& settings);

}  // namespace bellows::spank
