// SPDX-License-Identifier: Apache-2.0
#include "elastic/optimizer/shares.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <optional>

namespace bellows {
namespace {

using Gpus = std::vector<std::uint32_t>;

std::uint64_t sum(const Gpus& gpus) {
  std::uint64_t all = 0;
  for (const std::uint32_t g : gpus) all += g;
  return all;
}

// Hands out `free` GPUs, first to who has the least for its weight afterwards. `base`: what does
// not count. `next`: what the tenant would have after its next step; nothing: it wants no more.
template <class Next>
void fill(const std::vector<TenantShare>& tenants, std::uint64_t free, const Gpus& base, Gpus& held,
          Next next) {
  for (;;) {
    std::optional<std::size_t> first;
    std::uint32_t first_has = 0;
    for (std::size_t t = 0; t < tenants.size(); ++t) {
      const std::optional<std::uint32_t> has = next(t, held[t]);
      if (!has || *has - held[t] > free) continue;
      // In whole numbers, so that equal shares are equal.
      if (first && std::uint64_t{*has - base[t]} * tenants[*first].weight >=
                       std::uint64_t{first_has - base[*first]} * tenants[t].weight)
        continue;
      first = t;
      first_has = *has;
    }
    if (!first) return;
    free -= first_has - held[*first];
    held[*first] = first_has;
  }
}

Gpus floors_of(const std::vector<TenantShare>& tenants, std::uint32_t gpus) {
  Gpus floors;
  for (const TenantShare& tenant : tenants)
    floors.push_back(tenant.curve.least_for(std::min(tenant.guarantee, tenant.curve.most())));
  if (sum(floors) <= gpus) return floors;
  Gpus held(tenants.size());
  fill(tenants, gpus, Gpus(tenants.size()), held,
       [&floors](std::size_t t, std::uint32_t has) -> std::optional<std::uint32_t> {
         if (has == floors[t]) return std::nullopt;
         return has + 1;
       });
  for (std::size_t t = 0; t < tenants.size(); ++t) held[t] = tenants[t].curve.least_for(held[t]);
  return held;
}

std::optional<std::uint32_t> next_step(const TenantCurve& curve, std::uint32_t has) {
  const std::int32_t value = curve.value(has);
  for (std::uint32_t c = has + 1; c <= curve.most(); ++c)
    if (curve.value(c) > value) return c;
  return std::nullopt;
}

Gpus by_weight(const std::vector<TenantShare>& tenants, std::uint32_t gpus, const Gpus& floors) {
  // What a tenant waits for stays the same until it gets it.
  struct Known {
    std::uint32_t has;
    std::optional<std::uint32_t> next;
  };
  std::vector<std::optional<Known>> known(tenants.size());
  Gpus held = floors;
  fill(tenants, gpus - sum(floors), floors, held, [&](std::size_t t, std::uint32_t has) {
    if (!known[t] || known[t]->has != has) known[t] = Known{has, next_step(tenants[t].curve, has)};
    return known[t]->next;
  });
  return held;
}

std::vector<CurveStep> steps_from(const TenantCurve& curve, std::uint32_t floor,
                                  std::uint32_t gpus) {
  std::vector<CurveStep> steps = {{floor, curve.value(floor)}};
  for (auto next = next_step(curve, floor); next && *next <= gpus; next = next_step(curve, *next))
    steps.push_back({*next, curve.value(*next)});
  return steps;
}

Gpus by_value(const std::vector<TenantShare>& tenants, std::uint32_t gpus, const Gpus& floors) {
  std::vector<std::vector<CurveStep>> steps;
  std::uint32_t largest = 0;
  for (std::size_t t = 0; t < tenants.size(); ++t) {
    steps.push_back(steps_from(tenants[t].curve, floors[t], gpus));
    largest = std::max(largest, steps.back().back().gpus);
  }
  CurveRows rows(gpus, tenants.size(), largest, fastest_kernel());
  for (const auto& of_tenant : steps) rows.add(of_tenant);
  Gpus held(tenants.size());
  for (std::size_t t = tenants.size(); t-- > 0;) {
    const auto taken = std::find_if(steps[t].begin(), steps[t].end(), [&](const CurveStep& step) {
      return step.gpus <= gpus && rows.is_feasible(t, gpus - step.gpus) &&
             rows.value(t, gpus - step.gpus) + step.value == rows.value(t + 1, gpus);
    });
    held[t] = taken->gpus;
    gpus -= taken->gpus;
  }
  return held;
}

Status check(const std::vector<TenantShare>& tenants) {
  std::int64_t largest = 0;
  for (const TenantShare& tenant : tenants) {
    if (tenant.weight == 0)
      return Error{ErrorKind::invalid, "a tenant has the weight 0; it must be at least 1"};
    const TenantCurve& curve = tenant.curve;
    largest += std::max(std::abs(std::int64_t{curve.value(0)}),
                        std::abs(std::int64_t{curve.value(curve.most())}));
  }
  if (largest > CurveRows::kLargest)
    return Error{ErrorKind::invalid,
                 "the tenants' values are too large to be added exactly; use a smaller scale"};
  return {};
}

}  // namespace

Result<Gpus> share_gpus(const std::vector<TenantShare>& tenants, std::uint32_t gpus,
                        Surplus surplus) {
  if (auto status = check(tenants); !status) return status.error();
  const Gpus floors = floors_of(tenants, gpus);
  return surplus == Surplus::by_weight ? by_weight(tenants, gpus, floors)
                                       : by_value(tenants, gpus, floors);
}

}  // namespace bellows
