// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "slurm/job.h"

namespace bellows::pool {

/// The name of the jobs of a pool's members, by which a keeper knows those of its predecessor.
inline std::string member_job_name(const std::string& pool) { return pool + ".member"; }
/// The name of the job of its keeper.
inline std::string keeper_job_name(const std::string& pool) { return pool + ".keeper"; }

/// Whether a job with such a name is of the pool in `dir`, and not of another one that has the same
/// name: its output is there.
bool is_of_pool_in(const std::string& dir, const SlurmJob& job);

}  // namespace bellows::pool
