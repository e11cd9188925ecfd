// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "common/controller_address.h"
#include "common/result.h"
#include "slurm/client.h"

namespace bellows {

/// Asks bellowsd for what it does and plans: an object as bellowsd(8) describes it.
/// unavailable: none answers; denied: what answers is not bellowsd.
Result<nlohmann::ordered_json> ask_plan(const SlurmClient& slurm, const ControllerAddress& address);

}  // namespace bellows
