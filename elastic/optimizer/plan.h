// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "elastic/optimizer/shares.h"

namespace bellows {

/// Why a job gets what it gets.
enum class Reason {
  stays,  ///< any change would gain less than it costs
  starts,
  grows,
  shrinks,          ///< other jobs of its tenant, or other tenants, make more of the rest
  stops,            ///< likewise, of all that it has
  waits_for_limit,  ///< its tenant is at its limit
  waits_for_share,  ///< its tenant has what is its due, and other jobs of it make more of that
  waits_for_gain,   ///< no size of it is worth more than not running
};

/// "stays", "starts", ..., "waits for its tenant's limit".
const char* to_string(Reason reason);

struct JobPlan {
  std::uint32_t gpus = 0;   ///< 0: it does not run
  std::uint32_t batch = 0;  ///< samples in a step of the whole job; 0: it does not run
  Reason reason = Reason::stays;
};

struct TenantDivision {
  std::uint32_t gpus = 0;
  std::int32_t value = 0;     ///< what its jobs are worth together, prices of changes taken off
  std::vector<JobPlan> jobs;  ///< as in its curve
};

/// Divides one pool of equal GPUs among tenants and each one's share among its jobs; the plans are
/// in the order of the tenants. Exact in numbers of GPUs; whether these lie where a job can use
/// them is for the caller to see. Errors are those of share_gpus.
Result<std::vector<TenantDivision>> plan_pool(const std::vector<TenantShare>& tenants,
                                              std::uint32_t gpus, Surplus surplus);

}  // namespace bellows
