// SPDX-License-Identifier: Apache-2.0
#include "launcher/policy/tenant_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <set>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::string_view kRoot = "root";

/// Plans on a copy of what is there, on which it does each change.
class Planner {
 public:
  Planner(const Policy& policy, const SlurmAccounts& present, const std::string& cluster)
      : policy_(policy), slurm_(present), cluster_(cluster) {}

  Result<TenantPlan> plan();

 private:
  void change(std::vector<std::string> command, std::string why);
  void add_qos(const Tenant& tenant);
  void add_account(const Tenant& tenant, const std::string& account, std::string parent);
  Status move(const Tenant& tenant, const std::string& account, const std::string& parent);
  Status place(const Tenant& tenant);
  void limit(const Tenant& tenant);
  void allow_qos(const Tenant& tenant, const std::string& account);
  bool below(std::string_view account, std::string_view above) const;

  void note_accounts();
  void note_qos();
  void note_allowed_qos();
  void note_limits();
  bool covered(const std::string& account) const;

  const Policy& policy_;
  SlurmAccounts slurm_;
  const std::string& cluster_;
  TenantPlan plan_;
};

void Planner::change(std::vector<std::string> command, std::string why) {
  command.insert(command.begin(), {"sacctmgr", "--immediate"});
  plan_.changes.push_back({std::move(command), std::move(why)});
}

void Planner::add_qos(const Tenant& tenant) {
  for (const std::string& qos : named_qos(tenant))
    if (slurm_.qos.insert(qos).second)
      change({"add", "qos", "name=" + qos},
             fmt::format("tenant {} names QOS {}, which Slurm does not have", tenant.name, qos));
}

void Planner::add_account(const Tenant& tenant, const std::string& account, std::string parent) {
  if (parent.empty()) parent = kRoot;
  change({"add", "account", "name=" + account, "cluster=" + cluster_, "parent=" + parent},
         fmt::format("tenant {} has account {}, which Slurm does not have", tenant.name, account));
  slurm_.accounts[account] = {parent, std::nullopt, slurm_.accounts[parent].qos};
}

Status Planner::move(const Tenant& tenant, const std::string& account, const std::string& parent) {
  SlurmAccount& moved = slurm_.accounts[account];
  if (moved.parent == parent) return {};
  if (below(parent, account))
    return Error{
        ErrorKind::invalid,
        fmt::format("tenant {}: account {} cannot be placed below {}, which is below it; name "
                    "another parent or move {} by hand",
                    tenant.name, account, parent, parent)};
  change({"modify", "account", "where", "name=" + account, "cluster=" + cluster_, "set",
          "parent=" + parent},
         fmt::format("the quota of tenant {} is that of account {}", tenant.name, parent));
  moved.parent = parent;
  // Slurm does not say which QOS are the account's own and which only its old parent's.
  std::erase_if(moved.qos,
                [&](const std::string& qos) { return !slurm_.accounts[parent].qos.count(qos); });
  return {};
}

Status Planner::place(const Tenant& tenant) {
  const std::string parent = tenant.quota ? tenant.quota->parent : "";
  if (!parent.empty() && !slurm_.accounts.count(parent)) add_account(tenant, parent, "");
  for (const std::string& account : tenant.accounts) {
    if (!slurm_.accounts.count(account))
      add_account(tenant, account, parent);
    else if (!parent.empty())
      if (Status moved = move(tenant, account, parent); !moved) return moved;
  }
  return {};
}

void Planner::limit(const Tenant& tenant) {
  if (!tenant.quota) return;
  const Quota& quota = *tenant.quota;
  const std::string& account = quota.parent.empty() ? tenant.accounts.front() : quota.parent;
  std::optional<std::uint64_t>& gpus = slurm_.accounts[account].gpus;
  if (gpus == quota.gpus) return;
  change({"modify", "account", "where", "name=" + account, "cluster=" + cluster_, "set",
          fmt::format("GrpTRES=gres/gpu={}", quota.gpus)},
         fmt::format("the quota of tenant {} is {}, and account {} has {}", tenant.name,
                     counted(quota.gpus, "GPU"), account,
                     gpus ? fmt::format("{}", *gpus) : "no limit"));
  gpus = quota.gpus;
}

void Planner::allow_qos(const Tenant& tenant, const std::string& account) {
  std::vector<std::string> missing = named_qos(tenant);
  std::set<std::string>& allowed = slurm_.accounts[account].qos;
  std::erase_if(missing, [&](const std::string& qos) { return allowed.count(qos) > 0; });
  if (missing.empty()) return;
  change({"modify", "account", "where", "name=" + account, "cluster=" + cluster_, "set",
          fmt::format("QOS+={}", fmt::join(missing, ","))},
         fmt::format("tenant {} may use QOS {}, and account {} may not", tenant.name,
                     fmt::join(missing, ", "), account));
  allowed.insert(missing.begin(), missing.end());
}

bool Planner::below(std::string_view account, std::string_view above) const {
  for (auto at = slurm_.accounts.find(account); at != slurm_.accounts.end();
       at = slurm_.accounts.find(at->second.parent))
    if (at->first == above) return true;
  return false;
}

/// Whether some tenant has it, for itself, below one of its own, or for its quota.
bool Planner::covered(const std::string& account) const {
  const auto is_for = [&](const Tenant& tenant) {
    if (tenant.quota && tenant.quota->parent == account) return true;
    return std::any_of(tenant.accounts.begin(), tenant.accounts.end(), [&](const auto& own) {
      return own == account || (tenant.children && below(account, own));
    });
  };
  return std::any_of(policy_.tenants.begin(), policy_.tenants.end(), is_for);
}

void Planner::note_accounts() {
  std::vector<std::string> others;
  for (const auto& [name, account] : slurm_.accounts)
    if (name != kRoot && !covered(name)) others.push_back(name);
  if (others.empty()) return;
  plan_.notes.push_back(
      fmt::format("accounts that no tenant lists{}: {}",
                  policy_.default_tenant.empty()
                      ? ""
                      : fmt::format(" (tenant {} takes their jobs)", policy_.default_tenant),
                  fmt::join(others, ", ")));
}

bool permits_qos(const Tenant& tenant, const std::string& qos) {
  const std::vector<std::string>& patterns = tenant.sizing.qos_allowed;
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const auto& one) {
           return fnmatch(to_lower(one).c_str(), qos.c_str(), 0) == 0;
         });
}

void Planner::note_qos() {
  std::set<std::string> others = slurm_.qos;
  others.erase("normal");  // Slurm's own, which always exists
  std::erase_if(others, [&](const std::string& qos) {
    return std::any_of(policy_.tenants.begin(), policy_.tenants.end(), [&](const auto& tenant) {
      return !tenant.sizing.qos_allowed.empty() && permits_qos(tenant, qos);
    });
  });
  for (const Tenant& tenant : policy_.tenants) others.erase(to_lower(tenant.sizing.qos));
  if (!others.empty())
    plan_.notes.push_back(fmt::format("QOS that no tenant names: {}", fmt::join(others, ", ")));
}

void Planner::note_allowed_qos() {
  for (const auto& [name, account] : slurm_.accounts) {
    std::set<std::string> others = account.qos;
    bool listed = false;
    for (const Tenant& tenant : policy_.tenants) {
      if (std::find(tenant.accounts.begin(), tenant.accounts.end(), name) == tenant.accounts.end())
        continue;
      listed = true;
      std::erase_if(others, [&](const std::string& qos) { return permits_qos(tenant, qos); });
    }
    if (listed && !others.empty())
      plan_.notes.push_back(
          fmt::format("account {} may use QOS {} in Slurm, but in no tenant of the policy", name,
                      fmt::join(others, ", ")));
  }
}

void Planner::note_limits() {
  std::set<std::string> quotas;
  for (const Tenant& tenant : policy_.tenants)
    if (tenant.quota)
      quotas.insert(tenant.quota->parent.empty() ? tenant.accounts.front() : tenant.quota->parent);
  for (const auto& [name, account] : slurm_.accounts)
    if (account.gpus && !quotas.count(name) && covered(name))
      plan_.notes.push_back(fmt::format("account {} has a limit of {}, which is no tenant's quota",
                                        name, counted(*account.gpus, "GPU")));
}

/// What can stand alone in sacctmgr's lists.
Status check_qos(const Tenant& tenant) {
  constexpr std::string_view kMarks = "_.+-";
  for (const std::string& name : named_qos(tenant)) {
    const bool good = kMarks.find(name[0], 1) == std::string_view::npos &&
                      std::all_of(name.begin(), name.end(), [&](char c) {
                        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                               kMarks.find(c) != std::string_view::npos;
                      });
    if (!good)
      return Error{ErrorKind::invalid,
                   fmt::format("tenant {}: \"{}\" in qos_allowed is neither a pattern nor a name "
                               "that sacctmgr can take",
                               tenant.name, name)};
  }
  return {};
}

Result<TenantPlan> Planner::plan() {
  for (const Tenant& tenant : policy_.tenants)
    if (Status names = check_qos(tenant); !names) return names.error();
  for (const Tenant& tenant : policy_.tenants) add_qos(tenant);
  for (const Tenant& tenant : policy_.tenants)
    if (Status placed = place(tenant); !placed) return placed.error();
  for (const Tenant& tenant : policy_.tenants) {
    limit(tenant);
    for (const std::string& account : tenant.accounts) allow_qos(tenant, account);
  }
  note_accounts();
  note_qos();
  note_allowed_qos();
  note_limits();
  return std::move(plan_);
}

std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "_-+=.,/:@%";
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [&](char c) {
    return is_alphanumeric(c) || kPlain.find(c) != std::string_view::npos;
  });
  return plain ? word : shell_quoted(word);
}

}  // namespace

std::vector<std::string> named_qos(const Tenant& tenant) {
  std::vector<std::string> wanted = tenant.sizing.qos_allowed;
  if (!tenant.sizing.qos.empty()) wanted.push_back(tenant.sizing.qos);
  std::set<std::string> names;
  for (const std::string& name : wanted)
    if (name.find_first_of("*?[\\") == std::string::npos) names.insert(to_lower(name));
  return {names.begin(), names.end()};
}

Result<TenantPlan> plan_tenants(const Policy& policy, const SlurmAccounts& present,
                                const std::string& cluster) {
  return Planner(policy, present, cluster).plan();
}

std::string shell_line(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + quoted(word);
  return line;
}

}  // namespace bellows
