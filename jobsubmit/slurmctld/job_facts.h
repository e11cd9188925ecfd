// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "jobsubmit/admission/admission.h"
#include "jobsubmit/slurmctld/job_fields.h"
#include "slurm/compat.h"

namespace bellows {

/// What scripts see of a job beside its own fields, from what admission made of it.

/// As it is submitted. `decision` is for a request that wants Bellows.
JobFacts facts_of_submission(const job_desc_msg_t& desc, const Request& request,
                             const Decision& decision);

/// As it stands. `contract` is null for one that has none; `owner` is who submitted it.
JobFacts facts_of_job(const job_desc_msg_t& record, const Contract* contract, const Origin& owner);

/// Of an update of it, with the `changes` that admission adds.
JobFacts facts_of_update(const job_desc_msg_t& record, const job_desc_msg_t& update,
                         const Contract* contract, const Changes& changes);

}  // namespace bellows
