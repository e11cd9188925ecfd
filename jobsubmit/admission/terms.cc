// SPDX-License-Identifier: Apache-2.0
/// What a job gets beside its GPUs: their spelling, nodes, shares, partition, QOS and time.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/text.h"
#include "jobsubmit/admission/rules.h"
#include "jobsubmit/admission/sentence.h"
#include "jobsubmit/admission/tenant_choice.h"
#include "slurm/gres.h"

namespace bellows {
namespace {

/// The nodes of a job that keeps the way in which it asks, where its GPUs go by them.
std::optional<std::uint32_t> fixed_nodes(const Review& review) {
  return review.asked && !review.resizable() ? review.asked->nodes : std::nullopt;
}

bool choose_whole_nodes(Review& review) {
  const GpuLimits& limits = *review.limits;
  const Sizes& sizes = review.request.sizes;
  const std::uint32_t each = limits.gpus_per_node;
  for (std::uint32_t size : review.range.sizes()) {
    if (size % each != 0)
      return review.refuse(
          Refusal::policy,
          fmt::format("{} has whole nodes of {}, and {} is not a multiple of that; ask for "
                      "one that is",
                      review.jobs_of_tenant(), counted(each, "GPU"), size));
    if (limits.max_nodes > 0 && size / each > limits.max_nodes)
      return review.refuse(Refusal::policy,
                           fmt::format("{} are {}, but {} may have {} at most; ask for fewer GPUs",
                                       counted(size, "GPU"), counted(size / each, "node"),
                                       review.jobs_of_tenant(), counted(limits.max_nodes, "node")));
  }
  const std::uint32_t nodes = review.size / each;
  if (sizes.min_nodes.value_or(nodes) > nodes || sizes.max_nodes.value_or(nodes) < nodes ||
      fixed_nodes(review).value_or(nodes) != nodes)
    return review.refuse(
        Refusal::gpus,
        fmt::format("{} has whole nodes of {}, so {} are {}; ask for them with --gpus={} "
                    "and without --nodes",
                    review.jobs_of_tenant(), counted(each, "GPU"), counted(review.size, "GPU"),
                    counted(nodes, "node"), review.size));
  review.decision.changes.min_nodes = nodes;
  review.decision.changes.max_nodes = nodes;
  return true;
}

/// A job of one size keeps the way in which it asks; only a type may be missing.
void spell_type(Review& review) {
  Changes& changes = review.decision.changes;
  const Sizes& sizes = review.request.sizes;
  if (!review.asked || review.asked->form == GpuRequest::Form::per_gpu_tasks) {
    if (!review.asked || !review.type.empty())
      changes.per_job = spell_gpus(review.size, review.type);
    return;
  }
  const bool untyped = std::all_of(review.asked->types.begin(), review.asked->types.end(),
                                   [](const std::string& type) { return type.empty(); });
  if (review.type.empty() || !untyped) return;
  if (sizes.per_job) changes.per_job = with_type(*sizes.per_job, review.type);
  if (sizes.per_node) changes.per_node = with_type(*sizes.per_node, review.type);
  if (sizes.per_task) changes.per_task = with_type(*sizes.per_task, review.type);
}

void spell_size(Review& review) {
  if (review.range.is_none()) return;
  Changes& changes = review.decision.changes;
  const Sizes& sizes = review.request.sizes;
  if (review.resizable()) {
    changes.per_job = spell_gpus(review.size, review.type);
    if (sizes.per_node && review.asked) changes.per_node = review.asked->other_per_node;
    if (sizes.per_task && review.asked) changes.per_task = review.asked->other_per_task;
    changes.tasks = review.size;
  } else {
    spell_type(review);
    if (!sizes.tasks && !sizes.tasks_per_node && !sizes.tasks_per_gpu) changes.tasks = review.size;
    // Otherwise Slurm may add nodes, and with them GPUs, for the sake of CPUs.
    const auto nodes = fixed_nodes(review);
    if (nodes && (nodes != sizes.min_nodes || nodes != sizes.max_nodes))
      changes.min_nodes = changes.max_nodes = nodes;
  }
  if (changes.tasks) changes.min_cpus = *changes.tasks * sizes.cpus_per_task;
}

/// For each GPU rather than in all, so that they follow a resize.
void choose_shares(Review& review) {
  const Request& request = review.request;
  const Share* share = review.range.is_none() ? nullptr : review.tenant->sizing.share(review.type);
  if (!share) return;
  if (share->cpus > 0 && !request.cpus_said)
    review.decision.changes.cpus_per_gpu = spell_gpus(share->cpus);
  if (share->memory_mib > 0 && !request.memory_said)
    review.decision.changes.memory_per_gpu = spell_gpus(share->memory_mib + share->snapshot_mib);
}

void choose_signal(Review& review) {
  const Request& request = review.request;
  const Sizing& sizing = review.tenant->sizing;
  review.decision.changes.placement =
      request.placement_said ? PlacementStrategy::any : sizing.placement;
  if (sizing.signal_lead_s == 0 || !request.batch || request.signal_said) return;
  const std::uint64_t minutes =
      request.time_limit.value_or(review.decision.changes.time_limit.value_or(kUnlimited));
  // A shorter job would be told to end as soon as it starts.
  if (minutes * 60 <= sizing.signal_lead_s) return;
  review.decision.changes.signal_lead =
      static_cast<std::uint16_t>(std::min<std::uint32_t>(sizing.signal_lead_s, UINT16_MAX));
}

}  // namespace

bool choose_nodes(Review& review) {
  if (review.limits->gpus_per_node > 0 && !review.range.is_none())
    return choose_whole_nodes(review);
  const std::uint32_t most = review.limits->max_nodes;
  if (most == 0) return true;
  const Sizes& sizes = review.request.sizes;
  if (sizes.min_nodes && *sizes.min_nodes > most)
    return review.refuse(
        Refusal::policy,
        fmt::format("--nodes={}, but {} may have {} at most; ask for fewer nodes", *sizes.min_nodes,
                    review.jobs_of_tenant(), counted(most, "node")));
  if (const auto fixed = fixed_nodes(review).value_or(0); fixed > most)
    return review.refuse(
        Refusal::policy,
        fmt::format("the job's GPUs take {}, but {} may have {} at most; ask for more "
                    "GPUs on each",
                    counted(fixed, "node"), review.jobs_of_tenant(), counted(most, "node")));
  if (!sizes.max_nodes || *sizes.max_nodes > most) review.decision.changes.max_nodes = most;
  return true;
}

bool choose_partition(Review& review) {
  const Request& request = review.request;
  const Tenant& tenant = *review.tenant;
  const Sizing& sizing = tenant.sizing;
  std::string partition = request.partition;
  if (names_in(partition).empty()) {
    partition = sizing.partition.empty() ? request.default_partition : sizing.partition;
    if (!sizing.partition.empty()) review.decision.changes.partition = sizing.partition;
    if (sizing.partition.empty() && request.reserved && minds_partition(review.policy, tenant))
      return review.refuse(Refusal::policy, kReservedOnly);
    if (partition.empty() && !sizing.partitions.empty())
      return review.refuse(
          Refusal::policy,
          fmt::format("the job names no partition, and tenant {} may use {}; name one of "
                      "these with --partition",
                      tenant.name, fmt::join(sizing.partitions, ", ")));
  }
  if (std::string why = refuse_partitions(tenant, partition); !why.empty())
    return review.refuse(Refusal::policy, std::move(why));
  if (!request.qos || request.qos->empty()) {
    if (!sizing.qos.empty()) review.decision.changes.qos = sizing.qos;
    return true;
  }
  std::string why = refuse_qos(tenant, *request.qos);
  return why.empty() || review.refuse(Refusal::policy, std::move(why));
}

/// Without a limit of its own a job gets the partition's, which may be longer than the tenant's.
bool choose_time(Review& review) {
  const Tenant& tenant = *review.tenant;
  const Sizing& sizing = tenant.sizing;
  if (!review.request.time_limit) {
    const std::uint32_t minutes =
        sizing.time_default_min > 0 ? sizing.time_default_min : sizing.time_max_min;
    if (minutes > 0) review.decision.changes.time_limit = minutes;
    return true;
  }
  std::string why = refuse_time(tenant, *review.request.time_limit, "--time");
  return why.empty() || review.refuse(Refusal::policy, std::move(why));
}

void spell_terms(Review& review) {
  spell_size(review);
  choose_shares(review);
  choose_signal(review);
}

}  // namespace bellows
