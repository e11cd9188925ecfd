// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "elastic/daemon/planner.h"

namespace bellows {

/// How bellowsd makes plans by this bellows.yaml. invalid: it cannot be read as one, or names no
/// controller.
Result<PlanTerms> read_plan_terms(const std::string& path);

}  // namespace bellows
