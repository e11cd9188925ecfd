// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "jobsubmit/slurmctld/query.h"
#include "slurm/interface.h"

namespace bellows {

/// Asks slurmctld for the policy in force. This creates no job.
/// unavailable: slurmctld does not answer; not_found: it answers, but not as job_submit/bellows
/// does.
Result<PolicyStatus> ask_policy_status(Slurm& slurm);

}  // namespace bellows
