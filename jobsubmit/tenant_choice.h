// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jobsubmit/admission.h"

namespace bellows {

/// The tenant of a job, or why it has none.
struct TenantChoice {
  const Tenant* tenant = nullptr;
  Refusal why = Refusal::account;
  std::string message;  ///< without a tenant
};

/// The one tenant for each partition in which the job may start.
TenantChoice choose_tenant(const Policy& policy, const Origin& origin);

/// Whether `name` fits one of the patterns; where there are none, everything does.
bool is_open(const std::vector<std::string>& patterns, std::string_view name);

/// The names of a list with commas, each once and none empty; they are parts of `list`.
std::vector<std::string_view> names_in(std::string_view list);

/// Why a job of the tenant may not be in these partitions, or "".
std::string refuse_partitions(const Tenant& tenant, std::string_view partitions);
/// The same for QOS, which Slurm takes in any case.
std::string refuse_qos(const Tenant& tenant, std::string_view qos);
/// The same for a time limit in minutes.
std::string refuse_time(const Tenant& tenant, std::uint32_t minutes, std::string_view option);

}  // namespace bellows
