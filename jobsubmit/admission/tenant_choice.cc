// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/admission/tenant_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "common/text.h"
#include "jobsubmit/admission/sentence.h"

namespace bellows {
namespace {

const Tenant* tenant_in(const Policy& policy, const Origin& origin, std::string_view partition) {
  return policy.tenant_of(
      {origin.account, origin.user, &origin.groups, partition, &origin.parents});
}

/// Whether the choice between the tenants of this account depends on the user.
bool needs_person(const Policy& policy, const Origin& origin) {
  const auto lists = [&](const Tenant& tenant, const std::string& account) {
    return std::find(tenant.accounts.begin(), tenant.accounts.end(), account) !=
           tenant.accounts.end();
  };
  return std::any_of(policy.tenants.begin(), policy.tenants.end(), [&](const Tenant& tenant) {
    if (tenant.users.empty() && tenant.groups.empty()) return false;
    return lists(tenant, origin.account) || tenant.name == policy.default_tenant ||
           std::any_of(origin.parents.begin(), origin.parents.end(),
                       [&](const std::string& parent) { return lists(tenant, parent); });
  });
}

/// A job that names no partition is its tenant's where it would go: where Slurm puts it, or else
/// where a tenant that would take it there sends it.
const Tenant* tenant_without_partition(const Policy& policy, const Origin& origin) {
  if (const Tenant* tenant = tenant_in(policy, origin, origin.default_partition)) return tenant;
  for (const Tenant& tenant : policy.tenants)
    if (!tenant.sizing.partition.empty() &&
        tenant_in(policy, origin, tenant.sizing.partition) == &tenant)
      return &tenant;
  return nullptr;
}

TenantChoice no_tenant(const Policy& policy, const Origin& origin) {
  if (origin.account.empty())
    return {nullptr, Refusal::account,
            "the job has no account and you have no default one, so it belongs to no tenant; "
            "name an account with --account"};
  const bool listed =
      std::any_of(policy.tenants.begin(), policy.tenants.end(), [&](const Tenant& tenant) {
        return std::find(tenant.accounts.begin(), tenant.accounts.end(), origin.account) !=
               tenant.accounts.end();
      });
  if (listed)
    return {nullptr, Refusal::account,
            fmt::format("account \"{}\" has tenants of Bellows, but none that accepts you in {}; "
                        "name another account with --account or another partition with "
                        "--partition, or ask the administrator",
                        shown(origin.account),
                        origin.partition.empty()
                            ? "the default partition"
                            : fmt::format("partition {}", shown(origin.partition)))};
  return {nullptr, Refusal::account,
          fmt::format("account \"{}\" belongs to no tenant of Bellows; name another account "
                      "with --account, or ask the administrator to add it to bellows.yaml",
                      shown(origin.account))};
}

}  // namespace

std::vector<std::string_view> names_in(std::string_view list) {
  std::vector<std::string_view> names;
  std::set<std::string_view> seen;
  while (!list.empty()) {
    const auto comma = list.find(',');
    const std::string_view name = trim(list.substr(0, comma));
    if (!name.empty() && seen.insert(name).second) names.push_back(name);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return names;
}

bool is_open(const std::vector<std::string>& patterns, std::string_view name) {
  const std::string text(name);
  return patterns.empty() ||
         std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
           return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
         });
}

TenantChoice choose_tenant(const Policy& policy, const Origin& origin) {
  if (!origin.person_known && needs_person(policy, origin))
    return {nullptr, Refusal::unavailable,
            "the users and groups of bellows.yaml are still being looked up; try again in a "
            "moment, and tell the administrator if this persists"};
  const std::vector<std::string_view> partitions = names_in(origin.partition);
  const Tenant* tenant = partitions.empty() ? tenant_without_partition(policy, origin)
                                            : tenant_in(policy, origin, partitions.front());
  for (const std::string_view partition : partitions) {
    const Tenant* other = tenant_in(policy, origin, partition);
    if (!tenant || !other) return no_tenant(policy, origin);
    if (other != tenant)
      return {nullptr, Refusal::account,
              fmt::format("the partitions {} and {} belong to different tenants, {} and {}; name "
                          "partitions of one of them with --partition",
                          shown(partitions.front()), shown(partition), tenant->name, other->name)};
  }
  return tenant ? TenantChoice{tenant, {}, {}} : no_tenant(policy, origin);
}

bool minds_partition(const Policy& policy, const Tenant& tenant) {
  return policy.has_partitions() || !tenant.sizing.partitions.empty();
}

// With one reservation, or one that attracts jobs by itself, a job in the queue keeps its
// partition.
bool moves(std::string_view reservations, bool partition_by_slurm) {
  return partition_by_slurm && reservations.find(',') != std::string_view::npos;
}

std::string refuse_partitions(const Tenant& tenant, std::string_view partitions) {
  for (const std::string_view name : names_in(partitions))
    if (!is_open(tenant.sizing.partitions, name))
      return fmt::format("partition \"{}\" is not open to tenant {}; it may use {}", shown(name),
                         tenant.name, fmt::join(tenant.sizing.partitions, ", "));
  return "";
}

std::string refuse_qos(const Tenant& tenant, std::string_view qos) {
  std::vector<std::string> patterns;
  for (const std::string& pattern : tenant.sizing.qos_allowed)
    patterns.push_back(to_lower(pattern));
  for (const std::string_view name : names_in(qos))
    if (!is_open(patterns, to_lower(name)))
      return fmt::format("QOS \"{}\" is not open to tenant {}; it may use {}", shown(name),
                         tenant.name, fmt::join(tenant.sizing.qos_allowed, ", "));
  return "";
}

std::string refuse_time(const Tenant& tenant, std::uint32_t minutes, std::string_view option) {
  const std::uint32_t most = tenant.sizing.time_max_min;
  if (most == 0 || minutes <= most) return "";
  return fmt::format("{}={} is longer than the {} that a job of tenant {} may run; ask for less",
                     option, duration(minutes), duration(most), tenant.name);
}

std::optional<std::string> refuse_plain(const Policy& policy, const Origin& origin) {
  const auto refused = [&](std::string_view partition) {
    const auto rule = policy.plain_jobs_by_partition.find(std::string(partition));
    return (rule == policy.plain_jobs_by_partition.end() ? policy.plain_jobs : rule->second) ==
           Fallback::refuse;
  };
  std::vector<std::string_view> names = names_in(origin.partition);
  if (names.empty() && origin.reserved && !policy.plain_jobs_by_partition.empty())
    return kReservedOnly;
  if (names.empty()) names.push_back(origin.default_partition);
  for (const std::string_view name : names)
    if (refused(name))
      return fmt::format(
          "{} takes only jobs of Bellows; give the job --framework=NAME or "
          "--gpus-range=RANGE, or name another partition with --partition",
          name.empty() ? "the default partition" : fmt::format("partition {}", shown(name)));
  return std::nullopt;
}

}  // namespace bellows
