// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace bellows::pool {

/// The name of the jobs of a pool's members, by which a keeper knows those of its predecessor.
inline std::string member_job_name(const std::string& pool) { return pool + ".member"; }
/// The name of the job of its keeper.
inline std::string keeper_job_name(const std::string& pool) { return pool + ".keeper"; }

}  // namespace bellows::pool
