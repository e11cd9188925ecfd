// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "elastic/optimizer/tenant_curve.h"

namespace bellows {

/// Who gets what no guarantee claims.
enum class Surplus {
  by_weight,  ///< whatever speeds a tenant's jobs report, the others' shares stay as they are
  by_value    ///< whoever makes most of it: for sites that trust their tenants
};

/// A tenant that shares one pool of equal GPUs with others.
struct TenantShare {
  TenantCurve curve;  ///< up to the tenant's limit
  std::uint32_t guarantee = 0;
  std::uint32_t weight = 1;  ///< at least 1
};

/// GPUs of each tenant, none of which is without use to it.
///
/// A guarantee is a floor on a tenant's value, and not on GPUs that it would waste: it gets at
/// least what its guarantee could be worth to it. Guarantees that exceed the pool shrink by weight.
/// What is left goes out in steps, each the fewest GPUs that are worth more to a tenant; by weight,
/// the next step is that of the tenant that has the least surplus for its weight after it; by
/// value, the division is the best there is. invalid: a weight of 0, or values too large to be
/// added exactly.
Result<std::vector<std::uint32_t>> share_gpus(const std::vector<TenantShare>& tenants,
                                              std::uint32_t gpus, Surplus surplus);

}  // namespace bellows
