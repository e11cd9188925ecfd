// SPDX-License-Identifier: Apache-2.0
/// What each step of a decision found. Only looks: nothing here may decide anything.

#include "jobsubmit/admission/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/text.h"
#include "jobsubmit/admission/desk.h"
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

void Desk::tell_tenant(Trace& trace) const {
  trace.push_back(
      {"tenant", fmt::format("{}, by {}", tenant_->name, shown(match(*tenant_, request_), 512))});
}

void Desk::tell_framework(Trace& trace) const {
  if (!request_.framework) return;
  const Contract& contract = decision_.contract;
  std::string found = contract.framework;
  if (!contract.framework_version.empty()) found += ":" + contract.framework_version;
  if (request_.framework->find(':') == std::string::npos && !contract.framework_version.empty())
    found += ", the version for jobs that name none";
  if (!contract.image.empty()) found += ", image " + shown(contract.image, 512);
  if (!decision_.message.empty()) found += "; " + decision_.message;
  trace.push_back({"framework", std::move(found)});
}

void Desk::tell_container(Trace& trace) const {
  const Contract& contract = decision_.contract;
  if (!request_.container) return;
  std::string found = contract.image.empty() ? "no image; a step may name one"
                                             : fmt::format("image {}", shown(contract.image, 512));
  const std::string options(contract.extra_value(Contract::kContainerKey));
  if (!options.empty()) found += "; " + shown(options, 512);
  trace.push_back({"container", std::move(found)});
}

void Desk::tell_range(Trace& trace) const {
  if (range_.is_none()) {
    trace.push_back({"range", "no GPUs: the job asks for none, and for a container"});
    return;
  }
  std::string limits =
      fmt::format("{} may have {}", jobs_of_tenant(), counted(limits_->sizes.to_string(), "GPU"));
  if (!limits_->types.empty())
    limits += fmt::format(" of the types {}", fmt::join(limits_->types, ", "));
  trace.push_back({"limits", std::move(limits)});
  std::string range = range_.to_string();
  if (request_.gpus_range)
    range += ", of --gpus-range";
  else if (takes_default_range())
    range += ", the range of jobs that ask for no size";
  else
    range += asked_ ? fmt::format(", of {}", shown(asked_->option)) : ", the size to start with";
  trace.push_back({"range", std::move(range)});
}

void Desk::tell_type(Trace& trace) const {
  if (type_.empty()) return;
  const bool named = asked_ && holds(asked_->types, type_);
  trace.push_back({"GPU type", type_ + (named ? ", as asked for" : ", the only one open")});
}

void Desk::tell_size(Trace& trace) const {
  if (range_.is_none()) return;
  std::string why = "the size to start with";
  if (asked_)
    why = fmt::format("of {}", shown(asked_->option));
  else if (elastic() && request_.sizes.tasks)
    why = "one for each of --ntasks";
  else if (request_.sizes.min_nodes)
    why = "for --nodes";
  trace.push_back({"first size", fmt::format("{}, {}", counted(size_, "GPU"), why)});
  if (elastic() && !request_.gpus_range && range_.min() >= size_ && !limits_->shrink_below_start)
    trace.push_back({"shrinking", fmt::format("not below the first size: {}", range_.to_string())});
}

void Desk::tell_nodes(Trace& trace) const {
  if (limits_->gpus_per_node > 0 && !range_.is_none())
    trace.push_back({"nodes", fmt::format("{}, whole, of {} each",
                                          counted(size_ / limits_->gpus_per_node, "node"),
                                          counted(limits_->gpus_per_node, "GPU"))});
  else if (limits_->max_nodes > 0)
    trace.push_back({"nodes", fmt::format("{} at most", counted(limits_->max_nodes, "node"))});
}

void Desk::tell_partition(Trace& trace) const {
  const Sizing& sizing = tenant_->sizing;
  const Changes& changes = decision_.changes;
  if (changes.partition)
    trace.push_back({"partition", *changes.partition + ", the tenant's for jobs that name none"});
  else if (!sizing.partitions.empty())
    trace.push_back(
        {"partition", fmt::format("the tenant may use {}", fmt::join(sizing.partitions, ", "))});
  if (changes.qos)
    trace.push_back({"QOS", *changes.qos + ", the tenant's for jobs that name none"});
  else if (request_.qos && !sizing.qos_allowed.empty())
    trace.push_back({"QOS", fmt::format("{}; the tenant may use {}", shown(*request_.qos),
                                        fmt::join(sizing.qos_allowed, ", "))});
}

void Desk::tell_time(Trace& trace) const {
  const std::uint32_t most = tenant_->sizing.time_max_min;
  if (decision_.changes.time_limit)
    trace.push_back({"time limit", duration(*decision_.changes.time_limit) +
                                       ", the tenant's for jobs that give none"});
  else if (request_.time_limit && most > 0)
    trace.push_back({"time limit", fmt::format("{}, of {} at most", duration(*request_.time_limit),
                                               duration(most))});
}

void Desk::tell_batch_range(Trace& trace) const {
  if (decision_.contract.batch)
    trace.push_back({"batch range", decision_.contract.batch->to_string()});
}

void Desk::tell_terms(Trace& trace) const {
  const Share* share = range_.is_none() ? nullptr : tenant_->sizing.share(type_);
  if (share && share->cpus > 0)
    trace.push_back({"CPUs", request_.cpus_said ? "as the job says"
                                                : fmt::format("{} for each GPU", share->cpus)});
  if (share && share->memory_mib > 0)
    trace.push_back(
        {"memory", request_.memory_said
                       ? "as the job says"
                       : fmt::format("{} MiB for each GPU, and {} MiB for a checkpoint in flight",
                                     share->memory_mib, share->snapshot_mib)});
  if (decision_.changes.signal_lead)
    trace.push_back({"signal", fmt::format("USR1 to the batch script {} s before the time limit",
                                           *decision_.changes.signal_lead)});
  if (decision_.changes.placement != Placement::any)
    trace.push_back({"placement", decision_.changes.placement == Placement::pack
                                      ? "on few nodes"
                                      : "on many nodes"});
  if (decision_.changes.site_factor)
    trace.push_back({"priority", fmt::format("raised by {}", *decision_.changes.site_factor)});
  trace.push_back({"requeue", decision_.requeue ? "on: a resize and a lost node requeue the job"
                              : request_.batch  ? "off, by --no-requeue"
                                                : "off: no job of sbatch"});
}

}  // namespace bellows
