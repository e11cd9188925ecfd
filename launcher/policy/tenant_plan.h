// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "jobsubmit/policy/policy.h"
#include "launcher/slurm/accounts.h"

namespace bellows {

/// One call of sacctmgr.
struct TenantChange {
  std::vector<std::string> command;
  std::string why;
};

struct TenantPlan {
  std::vector<TenantChange> changes;  ///< in an order in which each finds what it needs
  std::vector<std::string> notes;     ///< what is in Slurm and not in the policy; nobody changes it
};

/// What is to be done so that Slurm has the accounts, QOS and quotas of the policy's tenants. With
/// all of it done, the plan is empty. invalid: Slurm's tree of accounts cannot become the policy's.
Result<TenantPlan> plan_tenants(const Policy& policy, const SlurmAccounts& present,
                                const std::string& cluster);

/// The QOS that the tenant names, without its patterns; lower case, as Slurm has them.
std::vector<std::string> named_qos(const Tenant& tenant);

/// A line that a shell reads as the command.
std::string shell_line(const std::vector<std::string>& command);

}  // namespace bellows
