// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/policy/policy.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>

#include "common/text.h"

namespace bellows {
namespace {

bool fits(const std::string& pattern, std::string_view text) {
  return fnmatch(pattern.c_str(), std::string(text).c_str(), 0) == 0;
}

bool fits_any(const std::vector<std::string>& patterns, std::string_view text) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [text](const std::string& pattern) { return fits(pattern, text); });
}

bool holds(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

bool takes_person(const Tenant& tenant, const Submitter& who) {
  if (tenant.users.empty() && tenant.groups.empty()) return true;
  if (holds(tenant.users, who.user)) return true;
  return who.groups && std::any_of(who.groups->begin(), who.groups->end(),
                                   [&](const auto& group) { return holds(tenant.groups, group); });
}

/// Slurm may start the job in any partition of its list, so all of them must be the tenant's.
bool takes_partition(const Tenant& tenant, std::string_view partitions) {
  if (tenant.partitions.empty()) return true;
  const auto names = split(partitions, ',');
  return std::all_of(names.begin(), names.end(), [&](std::string_view name) {
    return !name.empty() && fits_any(tenant.partitions, name);
  });
}

bool takes(const Tenant& tenant, const Submitter& who) {
  return takes_person(tenant, who) && takes_partition(tenant, who.partition);
}

}  // namespace

bool fits_framework(const std::string& pattern, std::string_view framework,
                    std::string_view version) {
  return fits(pattern, framework) ||
         (!version.empty() && fits(pattern, fmt::format("{}:{}", framework, version)));
}

const FrameworkVersion* Framework::find(std::string_view version) const {
  const auto found = std::find_if(versions.begin(), versions.end(),
                                  [version](const auto& one) { return one.version == version; });
  return found == versions.end() ? nullptr : &*found;
}

const Share* Sizing::share(std::string_view gpu_type) const {
  auto found = by_type.find(std::string(gpu_type));
  if (found == by_type.end()) found = by_type.find("");
  return found == by_type.end() ? nullptr : &found->second;
}

bool Tenant::permits(std::string_view framework, std::string_view version) const {
  return std::any_of(frameworks.begin(), frameworks.end(), [&](const std::string& pattern) {
    return fits_framework(pattern, framework, version);
  });
}

const GpuLimits& Tenant::limits_for(std::string_view framework, std::string_view version) const {
  if (framework.empty()) return gpus;
  for (const FrameworkRule& rule : rules)
    if (fits_framework(rule.pattern, framework, version)) return rule.gpus;
  return gpus;
}

bool SiteModel::is_seen_by(std::string_view viewer) const {
  return viewer == tenant || for_all || holds(visible, viewer);
}

void Policy::index() {
  by_account_.clear();
  by_name_.clear();
  has_children_ = has_partitions_ = has_images_ = false;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    by_name_.emplace(tenants[i].name, i);
    has_children_ = has_children_ || tenants[i].children;
    has_partitions_ = has_partitions_ || !tenants[i].partitions.empty();
    has_images_ = has_images_ || !tenants[i].images.empty();
    for (const std::string& account : tenants[i].accounts) by_account_[account].push_back(i);
  }
}

const Tenant* Policy::among(std::string_view account, const Submitter& who,
                            bool for_children) const {
  const auto found = by_account_.find(account);
  if (found == by_account_.end()) return nullptr;
  for (const std::size_t i : found->second)
    if ((!for_children || tenants[i].children) && takes(tenants[i], who)) return &tenants[i];
  return nullptr;
}

const Tenant* Policy::tenant_of(const Submitter& who) const {
  if (const Tenant* tenant = among(who.account, who, false)) return tenant;
  if (who.parents)
    for (const std::string& parent : *who.parents)
      if (const Tenant* tenant = among(parent, who, true)) return tenant;
  const Tenant* fallback = default_tenant.empty() ? nullptr : find_tenant(default_tenant);
  return fallback && takes(*fallback, who) ? fallback : nullptr;
}

const Tenant* Policy::find_tenant(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tenants[found->second];
}

const SiteModel* Policy::find_model(std::string_view tenant, std::string_view name) const {
  const SiteModel* shown = nullptr;
  for (const SiteModel& model : models) {
    if (model.name != name || !model.is_seen_by(tenant)) continue;
    if (model.tenant == tenant) return &model;
    shown = &model;
  }
  return shown;
}

}  // namespace bellows
