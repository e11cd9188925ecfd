// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spank/host.h"

namespace bellows::spank {

/// slurmstepd, before the user's processes start: gives a job with a contract its BELLOWS_
/// variables, takes forged ones away from every job, and corrects the batch script's size
/// variables after a resize.
void prepare_step(spank_t spank, const Settings& settings);

/// slurmstepd of the batch script, after its processes are gone and before slurmctld is told:
/// requeues the job if its launcher was killed before it could record an outcome.
void finish_step(spank_t spank, const Settings& settings);

}  // namespace bellows::spank
