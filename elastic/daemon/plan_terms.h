// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "elastic/daemon/planner.h"
#include "jobsubmit/policy/policy.h"

namespace bellows {

/// How plans are to be made, as the policy says it; it must have a controller. `restart_s`: what a
/// change of size takes; nothing before one was seen.
PlanTerms plan_terms_of(const Policy& policy, std::optional<double> restart_s);

}  // namespace bellows
