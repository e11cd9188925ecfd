// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/plan_terms.h"

#include <cstdint>

namespace bellows {
namespace {

/// Of a change of size, before any was seen.
constexpr double kRestart = 10;

}  // namespace

PlanTerms plan_terms_of(const Policy& policy, std::optional<double> restart_s) {
  const ControllerSettings& settings = *policy.controller;
  PlanTerms terms;
  switch (settings.objective) {
    case ControllerSettings::Objective::fair:
      terms.objective.objective = Objective::fair;
      break;
    case ControllerSettings::Objective::goodput:
      terms.objective.objective = Objective::goodput;
      break;
    case ControllerSettings::Objective::throughput:
      terms.objective.objective = Objective::throughput;
      break;
  }
  terms.objective.restart_s = restart_s.value_or(kRestart);
  terms.surplus = settings.share_by_value ? Surplus::by_value : Surplus::by_weight;
  terms.dwell_s = settings.dwell_s;
  terms.restarts_per_hour = settings.restarts_per_hour;
  terms.last_s = settings.last_s;
  terms.user_wins_s = settings.user_wins_s;
  for (const Tenant& tenant : policy.tenants)
    terms.tenants[tenant.name] = {tenant.guarantee, tenant.quota ? tenant.quota->gpus : UINT32_MAX,
                                  tenant.weight};
  return terms;
}

}  // namespace bellows
