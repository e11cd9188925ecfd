// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jobsubmit/admission/admission.h"

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

/// For a job whose reservation would choose the partition, where that matters.
constexpr const char* kReservedOnly =
    "the job names a reservation and no partition, so Slurm would use the reservation's partition, "
    "which is not known here; name the partition too, with --partition";

/// Whether the partition of a job decides its admission.
bool minds_partition(const Policy& policy, const Tenant& tenant);

/// Whether Slurm starts a job in the partitions of the reservations that an update gives it.
bool moves(std::string_view reservations, bool partition_by_slurm);
constexpr const char* kMovedByReservations =
    "the job was submitted without a partition, so Slurm would move it to those of several "
    "reservations; name one reservation, or cancel the job and submit it again with --partition";

/// Why a job of the tenant may not be in these partitions, or "".
std::string refuse_partitions(const Tenant& tenant, std::string_view partitions);
/// The same for QOS, which Slurm takes in any case.
std::string refuse_qos(const Tenant& tenant, std::string_view qos);
/// The same for a time limit in minutes.
std::string refuse_time(const Tenant& tenant, std::uint32_t minutes, std::string_view option);

}  // namespace bellows
