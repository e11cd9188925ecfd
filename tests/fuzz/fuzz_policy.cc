// SPDX-License-Identifier: Apache-2.0
/// bellows.yaml as an attacker would write it: every text gives a policy or an error with a place,
/// and a policy keeps what its types promise.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "jobsubmit/policy/policy.h"

namespace {

using namespace bellows;

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const GpuLimits& gpus) {
  require(!gpus.sizes.sizes().empty() && gpus.sizes.contains(gpus.start));
  if (gpus.range)
    for (const std::uint32_t size : gpus.range->sizes()) require(gpus.sizes.contains(size));
  if (gpus.gpus_per_node != 0)
    for (const std::uint32_t size : gpus.sizes.sizes()) require(size % gpus.gpus_per_node == 0);
}

void check(const Framework& framework) {
  require(!framework.versions.empty());
  const FrameworkVersion* version = framework.find(framework.default_version);
  require(version && version->state != LifeCycle::removed);
}

void check(const Policy& policy, const Tenant& tenant) {
  check(tenant.gpus);
  for (const FrameworkRule& rule : tenant.rules) check(rule.gpus);
  const Sizing& sizing = tenant.sizing;
  require(sizing.time_max_min == 0 || sizing.time_default_min <= sizing.time_max_min);
  require(policy.find_tenant(tenant.name) == &tenant);
  // Of those that share an account, only the last is not narrowed to somebody.
  if (tenant.narrowed()) return;
  for (const std::string& account : tenant.accounts) {
    Submitter who;
    who.account = account;
    require(policy.tenant_of(who) == &tenant);
  }
}

/// Whoever sees a model means it by its name, unless that tenant has another of that name.
void check(const Policy& policy, const SiteModel& model) {
  require(policy.find_tenant(model.tenant) &&
          policy.find_model(model.tenant, model.name) == &model);
  require(model.source.size() < 1024 && (model.user.empty() || !model.uid));
  for (const Tenant& tenant : policy.tenants) {
    const SiteModel* found = policy.find_model(tenant.name, model.name);
    require(!found || found->is_seen_by(tenant.name));
    if (model.is_seen_by(tenant.name)) require(found == &model || found->tenant == tenant.name);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto policy = load_policy(text, "f");
  if (!policy) {
    require(policy.error().text.starts_with("f:"));
    return 0;
  }
  require(policy->digest.size() == 16);
  require(policy->default_tenant.empty() || policy->find_tenant(policy->default_tenant));
  for (const auto& [name, framework] : policy->frameworks) check(framework);
  for (const Tenant& tenant : policy->tenants) check(*policy, tenant);
  for (const SiteModel& model : policy->models) check(*policy, model);
  return 0;
}
