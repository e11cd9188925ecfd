// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spank/host.h"

namespace bellows::spank {

/// job_prolog, as root on every node of a job: stores the contract that slurmctld sent with the
/// prolog request, for slurmstepd to trust. Without one it only looks whether something is left of
/// an earlier job of the same number. Collects what jobs long gone have left.
void job_prolog(spank_t spank, const Settings& settings);

}  // namespace bellows::spank
