// SPDX-License-Identifier: Apache-2.0
#include "elastic/optimizer/plan.h"

#include <algorithm>
#include <cstddef>

namespace bellows {
namespace {

bool gains_by_running(const ElasticJob& job) {
  return std::any_of(job.sizes.begin(), job.sizes.end(), [&job](const JobSize& size) {
    return worth(job, size.gpus, size.value) > worth(job, 0, job.idle_value);
  });
}

Reason reason_of(const ElasticJob& job, std::uint32_t gpus, bool at_limit) {
  if (gpus == job.now && gpus > 0) return Reason::stays;
  if (gpus > 0)
    return job.now == 0 ? Reason::starts : gpus > job.now ? Reason::grows : Reason::shrinks;
  if (job.now > 0) return Reason::stops;
  if (!gains_by_running(job)) return Reason::waits_for_gain;
  return at_limit ? Reason::waits_for_limit : Reason::waits_for_share;
}

std::uint32_t batch_of(const ElasticJob& job, std::uint32_t gpus) {
  for (const JobSize& size : job.sizes)
    if (size.gpus == gpus) return size.batch;
  return 0;
}

TenantDivision plan_tenant(const TenantCurve& curve, std::uint32_t gpus) {
  TenantDivision plan{.gpus = gpus, .value = curve.value(gpus), .jobs = {}};
  const bool at_limit = curve.least_for(curve.most()) == gpus;
  const auto held = curve.divide(gpus);
  for (std::size_t j = 0; j < held.size(); ++j) {
    const ElasticJob& job = curve.jobs()[j];
    plan.jobs.push_back({held[j], batch_of(job, held[j]), reason_of(job, held[j], at_limit)});
  }
  return plan;
}

}  // namespace

const char* to_string(Reason reason) {
  switch (reason) {
    case Reason::stays:
      return "stays";
    case Reason::starts:
      return "starts";
    case Reason::grows:
      return "grows";
    case Reason::shrinks:
      return "shrinks";
    case Reason::stops:
      return "stops";
    case Reason::waits_for_limit:
      return "waits for its tenant's limit";
    case Reason::waits_for_share:
      return "waits for its tenant's share";
    case Reason::waits_for_gain:
      return "waits until running is worth more";
  }
  return "";
}

Result<std::vector<TenantDivision>> plan_pool(const std::vector<TenantShare>& tenants,
                                              std::uint32_t gpus, Surplus surplus) {
  const auto shares = share_gpus(tenants, gpus, surplus);
  if (!shares) return shares.error();
  std::vector<TenantDivision> plans;
  for (std::size_t t = 0; t < tenants.size(); ++t)
    plans.push_back(plan_tenant(tenants[t].curve, (*shares)[t]));
  return plans;
}

}  // namespace bellows
