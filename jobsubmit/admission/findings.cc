// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/admission/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/pool_option.h"
#include "common/text.h"
#include "jobsubmit/admission/sentence.h"
#include "jobsubmit/admission/tenant_choice.h"

namespace bellows {
namespace {

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// By what a tenant took a job.
std::string match(const Tenant& tenant, const Origin& origin) {
  std::vector<std::string> by;
  const auto above = std::find_if(origin.parents.begin(), origin.parents.end(),
                                  [&](const auto& name) { return holds(tenant.accounts, name); });
  if (holds(tenant.accounts, origin.account))
    by.push_back(fmt::format("account {}", origin.account));
  else if (tenant.children && above != origin.parents.end())
    by.push_back(fmt::format("account {} above {}", *above, origin.account));
  else
    by.emplace_back("default_tenant");
  if (holds(tenant.users, origin.user)) by.push_back(fmt::format("user {}", origin.user));
  for (const std::string& group : origin.groups)
    if (holds(tenant.groups, group)) by.push_back(fmt::format("group {}", group));
  if (!tenant.partitions.empty()) by.emplace_back("its partition");
  return fmt::format("{}", fmt::join(by, ", "));
}

}  // namespace

void tell_tenant(const Review& review, Trace& trace) {
  const Tenant& tenant = *review.tenant;
  trace.push_back(
      {"tenant", fmt::format("{}, by {}", tenant.name, shown(match(tenant, review.request), 512))});
}

void tell_framework(const Review& review, Trace& trace) {
  if (!review.request.framework) return;
  const Contract& contract = review.decision.contract;
  std::string found = contract.framework;
  if (!contract.framework_version.empty()) found += ":" + contract.framework_version;
  if (review.request.framework->find(':') == std::string::npos &&
      !contract.framework_version.empty())
    found += ", the version for jobs that name none";
  if (!contract.image.empty()) found += ", image " + shown(contract.image, 512);
  if (!review.decision.message.empty()) found += "; " + review.decision.message;
  trace.push_back({"framework", std::move(found)});
}

void tell_container(const Review& review, Trace& trace) {
  const Contract& contract = review.decision.contract;
  if (!review.request.container) return;
  std::string found = contract.image.empty() ? "no image; a step may name one"
                                             : fmt::format("image {}", shown(contract.image, 512));
  const std::string options(contract.extra_value(Contract::kContainerKey));
  if (!options.empty()) found += "; " + shown(options, 512);
  trace.push_back({"container", std::move(found)});
}

void tell_pool(const Review& review, Trace& trace) {
  if (!review.request.pool) return;
  const auto pool = PoolOption::parse(review.decision.contract.extra_value(Contract::kPoolKey));
  if (!pool) return;
  trace.push_back({"pool", pool->is_keeper()
                               ? fmt::format("the keeper of {}, with {} to {} members", pool->name,
                                             pool->min, pool->max)
                               : fmt::format("a member of {}", pool->name)});
}

void tell_range(const Review& review, Trace& trace) {
  const GpuLimits& most = *review.limits;
  if (review.range.is_none()) {
    trace.push_back({"range", review.request.pool
                                  ? "no GPUs: the job asks for none"
                                  : "no GPUs: the job asks for none, and for a container"});
    return;
  }
  std::string limits = fmt::format("{} may have {}", review.jobs_of_tenant(),
                                   counted(most.sizes.to_string(), "GPU"));
  if (!most.types.empty()) limits += fmt::format(" of the types {}", fmt::join(most.types, ", "));
  trace.push_back({"limits", std::move(limits)});
  std::string range = review.range.to_string();
  if (review.request.gpus_range)
    range += ", of --gpus-range";
  else if (review.takes_default_range())
    range += ", the range of jobs that ask for no size";
  else
    range += review.asked ? fmt::format(", of {}", shown(review.asked->option))
                          : ", the size to start with";
  trace.push_back({"range", std::move(range)});
}

void tell_type(const Review& review, Trace& trace) {
  if (review.type.empty()) return;
  const bool named = review.asked && holds(review.asked->types, review.type);
  trace.push_back({"GPU type", review.type + (named ? ", as asked for" : ", the only one open")});
}

void tell_size(const Review& review, Trace& trace) {
  const Request& request = review.request;
  if (review.range.is_none()) return;
  std::string why = "the size to start with";
  if (review.asked)
    why = fmt::format("of {}", shown(review.asked->option));
  else if (review.elastic() && request.sizes.tasks)
    why = "one for each of --ntasks";
  else if (request.sizes.min_nodes)
    why = "for --nodes";
  trace.push_back({"first size", fmt::format("{}, {}", counted(review.size, "GPU"), why)});
  if (review.elastic() && !request.gpus_range && review.range.min() >= review.size &&
      !review.limits->shrink_below_start)
    trace.push_back(
        {"shrinking", fmt::format("not below the first size: {}", review.range.to_string())});
}

void tell_nodes(const Review& review, Trace& trace) {
  const GpuLimits& limits = *review.limits;
  if (limits.gpus_per_node > 0 && !review.range.is_none())
    trace.push_back({"nodes", fmt::format("{}, whole, of {} each",
                                          counted(review.size / limits.gpus_per_node, "node"),
                                          counted(limits.gpus_per_node, "GPU"))});
  else if (limits.max_nodes > 0)
    trace.push_back({"nodes", fmt::format("{} at most", counted(limits.max_nodes, "node"))});
}

void tell_partition(const Review& review, Trace& trace) {
  const Sizing& sizing = review.tenant->sizing;
  const Changes& changes = review.decision.changes;
  if (changes.partition)
    trace.push_back({"partition", *changes.partition + ", the tenant's for jobs that name none"});
  else if (!sizing.partitions.empty())
    trace.push_back(
        {"partition", fmt::format("the tenant may use {}", fmt::join(sizing.partitions, ", "))});
  if (changes.qos)
    trace.push_back({"QOS", *changes.qos + ", the tenant's for jobs that name none"});
  else if (review.request.qos && !sizing.qos_allowed.empty())
    trace.push_back({"QOS", fmt::format("{}; the tenant may use {}", shown(*review.request.qos),
                                        fmt::join(sizing.qos_allowed, ", "))});
}

void tell_time(const Review& review, Trace& trace) {
  const Request& request = review.request;
  const auto minutes = review.decision.changes.time_limit;
  const std::uint32_t most = review.tenant->sizing.time_max_min;
  if (minutes)
    trace.push_back({"time limit", duration(*minutes) + ", the tenant's for jobs that give none"});
  else if (request.time_limit && most > 0)
    trace.push_back({"time limit", fmt::format("{}, of {} at most", duration(*request.time_limit),
                                               duration(most))});
}

void tell_batch_range(const Review& review, Trace& trace) {
  if (review.decision.contract.batch)
    trace.push_back({"batch range", review.decision.contract.batch->to_string()});
}

void tell_models(const Review& review, Trace& trace) {
  const auto models = review.decision.contract.extra_value(Contract::kModelsKey);
  if (models.empty()) return;
  const bool own = review.request.models.has_value();
  const bool on_gpu =
      review.decision.contract.extra_value(Contract::kModelOnKey) == Contract::kOnGpu;
  trace.push_back({"models", fmt::format("{}{}{}", models,
                                         own ? "" : ", the framework's for jobs that name none",
                                         on_gpu ? ", also on the job's GPUs" : "")});
}

void tell_job_class(const Review& review, Trace& trace) {
  const std::string& name = review.decision.contract.job_class;
  if (!name.empty()) trace.push_back({"job class", name});
}

void tell_terms(const Review& review, Trace& trace) {
  const Request& request = review.request;
  const Changes& changes = review.decision.changes;
  const Share* share = review.range.is_none() ? nullptr : review.tenant->sizing.share(review.type);
  if (share && share->cpus > 0)
    trace.push_back({"CPUs", request.cpus_said ? "as the job says"
                                               : fmt::format("{} for each GPU", share->cpus)});
  if (share && share->memory_mib > 0)
    trace.push_back(
        {"memory", request.memory_said
                       ? "as the job says"
                       : fmt::format("{} MiB for each GPU, and {} MiB for a checkpoint in flight",
                                     share->memory_mib, share->snapshot_mib)});
  if (changes.signal_lead)
    trace.push_back({"signal", fmt::format("USR1 to the batch script {} s before the time limit",
                                           *changes.signal_lead)});
  if (changes.placement != PlacementStrategy::any)
    trace.push_back({"placement", changes.placement == PlacementStrategy::pack ? "on few nodes"
                                                                               : "on many nodes"});
  if (changes.site_factor)
    trace.push_back({"priority", fmt::format("raised by {}", *changes.site_factor)});
  trace.push_back({"requeue", review.decision.requeue
                                  ? "on: a resize and a lost node requeue the job"
                              : request.batch ? "off, by --no-requeue"
                                              : "off: not submitted with sbatch"});
}

}  // namespace bellows
