// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "pool/wire/pool_settings.h"

namespace bellows::pool {

/// Submits the keeper of the pool in `dir`, a job that `bellows run` brings back whatever it loses.
/// The job. denied: Slurm refuses it.
Result<std::string> submit_keeper(const PoolSettings& settings, const std::string& dir);

enum class PoolJobs { keeper, all };
/// Jobs of this user's pool in `dir` that have not ended; empty: of all of that name, wherever.
Result<std::vector<std::uint32_t>> jobs_of_pool(const std::string& pool, PoolJobs which,
                                                const std::string& dir);

}  // namespace bellows::pool
