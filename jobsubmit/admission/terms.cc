// SPDX-License-Identifier: Apache-2.0
/// What a job gets beside its GPUs: their spelling, nodes, shares, partition, QOS and time.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/text.h"
#include "jobsubmit/admission/desk.h"
#include "jobsubmit/admission/sentence.h"
#include "jobsubmit/admission/tenant_choice.h"

namespace bellows {

/// The nodes of a job that keeps the way in which it asks, where its GPUs go by them.
std::optional<std::uint32_t> Desk::fixed_nodes() const {
  return asked_ && !resizable() ? asked_->nodes : std::nullopt;
}

bool Desk::choose_nodes() {
  if (limits_->gpus_per_node > 0 && !range_.is_none()) return choose_whole_nodes();
  const std::uint32_t most = limits_->max_nodes;
  if (most == 0) return true;
  const Sizes& sizes = request_.sizes;
  if (sizes.min_nodes && *sizes.min_nodes > most)
    return refuse(Refusal::policy,
                  fmt::format("--nodes={}, but {} may have {} at most; ask for fewer nodes",
                              *sizes.min_nodes, jobs_of_tenant(), counted(most, "node")));
  if (const auto fixed = fixed_nodes().value_or(0); fixed > most)
    return refuse(Refusal::policy,
                  fmt::format("the job's GPUs take {}, but {} may have {} at most; ask for more "
                              "GPUs on each",
                              counted(fixed, "node"), jobs_of_tenant(), counted(most, "node")));
  if (!sizes.max_nodes || *sizes.max_nodes > most) decision_.changes.max_nodes = most;
  return true;
}

bool Desk::choose_whole_nodes() {
  const Sizes& sizes = request_.sizes;
  const std::uint32_t each = limits_->gpus_per_node;
  for (std::uint32_t size : range_.sizes()) {
    if (size % each != 0)
      return refuse(Refusal::policy,
                    fmt::format("{} has whole nodes of {}, and {} is no multiple of that; ask for "
                                "one that is",
                                jobs_of_tenant(), counted(each, "GPU"), size));
    if (limits_->max_nodes > 0 && size / each > limits_->max_nodes)
      return refuse(Refusal::policy,
                    fmt::format("{} are {}, but {} may have {} at most; ask for fewer GPUs",
                                counted(size, "GPU"), counted(size / each, "node"),
                                jobs_of_tenant(), counted(limits_->max_nodes, "node")));
  }
  const std::uint32_t nodes = size_ / each;
  if (sizes.min_nodes.value_or(nodes) > nodes || sizes.max_nodes.value_or(nodes) < nodes ||
      fixed_nodes().value_or(nodes) != nodes)
    return refuse(Refusal::gpus,
                  fmt::format("{} has whole nodes of {}, so {} are {}; ask for them with --gpus={} "
                              "and without --nodes",
                              jobs_of_tenant(), counted(each, "GPU"), counted(size_, "GPU"),
                              counted(nodes, "node"), size_));
  decision_.changes.min_nodes = nodes;
  decision_.changes.max_nodes = nodes;
  return true;
}

bool Desk::choose_partition() {
  const Sizing& sizing = tenant_->sizing;
  std::string partition = request_.partition;
  if (names_in(partition).empty()) {
    partition = sizing.partition.empty() ? request_.default_partition : sizing.partition;
    if (!sizing.partition.empty()) decision_.changes.partition = sizing.partition;
    if (sizing.partition.empty() && request_.reserved && minds_partition(policy_, *tenant_))
      return refuse(Refusal::policy, kReservedOnly);
    if (partition.empty() && !sizing.partitions.empty())
      return refuse(Refusal::policy,
                    fmt::format("the job names no partition, and tenant {} may use {}; name one of "
                                "these with --partition",
                                tenant_->name, fmt::join(sizing.partitions, ", ")));
  }
  if (std::string why = refuse_partitions(*tenant_, partition); !why.empty())
    return refuse(Refusal::policy, std::move(why));
  if (!request_.qos || request_.qos->empty()) {
    if (!sizing.qos.empty()) decision_.changes.qos = sizing.qos;
    return true;
  }
  std::string why = refuse_qos(*tenant_, *request_.qos);
  return why.empty() || refuse(Refusal::policy, std::move(why));
}

/// Without a limit of its own a job gets the partition's, which may be longer than the tenant's.
bool Desk::choose_time() {
  const Sizing& sizing = tenant_->sizing;
  if (!request_.time_limit) {
    const std::uint32_t minutes =
        sizing.time_default_min > 0 ? sizing.time_default_min : sizing.time_max_min;
    if (minutes > 0) decision_.changes.time_limit = minutes;
    return true;
  }
  std::string why = refuse_time(*tenant_, *request_.time_limit, "--time");
  return why.empty() || refuse(Refusal::policy, std::move(why));
}

void Desk::spell_size() {
  if (range_.is_none()) return;
  Changes& changes = decision_.changes;
  const Sizes& sizes = request_.sizes;
  if (resizable()) {
    changes.per_job = spell_gpus(size_, type_);
    if (sizes.per_node && asked_) changes.per_node = asked_->other_per_node;
    if (sizes.per_task && asked_) changes.per_task = asked_->other_per_task;
    changes.tasks = size_;
  } else {
    spell_type();
    if (!sizes.tasks && !sizes.tasks_per_node && !sizes.tasks_per_gpu) changes.tasks = size_;
    // Otherwise Slurm may add nodes, and with them GPUs, for the sake of CPUs.
    const auto nodes = fixed_nodes();
    if (nodes && (nodes != sizes.min_nodes || nodes != sizes.max_nodes))
      changes.min_nodes = changes.max_nodes = nodes;
  }
  if (changes.tasks) changes.min_cpus = *changes.tasks * sizes.cpus_per_task;
}

/// A job of one size keeps the way in which it asks; only a type may be missing.
void Desk::spell_type() {
  Changes& changes = decision_.changes;
  const Sizes& sizes = request_.sizes;
  if (!asked_ || asked_->form == GpuRequest::Form::per_gpu_tasks) {
    if (!asked_ || !type_.empty()) changes.per_job = spell_gpus(size_, type_);
    return;
  }
  const bool untyped = std::all_of(asked_->types.begin(), asked_->types.end(),
                                   [](const std::string& type) { return type.empty(); });
  if (type_.empty() || !untyped) return;
  if (sizes.per_job) changes.per_job = with_type(*sizes.per_job, type_);
  if (sizes.per_node) changes.per_node = with_type(*sizes.per_node, type_);
  if (sizes.per_task) changes.per_task = with_type(*sizes.per_task, type_);
}

/// For each GPU rather than in all, so that they follow a resize.
void Desk::choose_shares() {
  const Share* share = range_.is_none() ? nullptr : tenant_->sizing.share(type_);
  if (!share) return;
  if (share->cpus > 0 && !request_.cpus_said)
    decision_.changes.cpus_per_gpu = fmt::format("gres:gpu:{}", share->cpus);
  if (share->memory_mib > 0 && !request_.memory_said)
    decision_.changes.memory_per_gpu =
        fmt::format("gres:gpu:{}", share->memory_mib + share->snapshot_mib);
}

void Desk::choose_signal() {
  const Sizing& sizing = tenant_->sizing;
  decision_.changes.placement = request_.placement_said ? Placement::any : sizing.placement;
  if (sizing.signal_lead_s == 0 || !request_.batch || request_.signal_said) return;
  const std::uint64_t minutes =
      request_.time_limit.value_or(decision_.changes.time_limit.value_or(kUnlimited));
  // A shorter job would be told to end as soon as it starts.
  if (minutes * 60 <= sizing.signal_lead_s) return;
  decision_.changes.signal_lead =
      static_cast<std::uint16_t>(std::min<std::uint32_t>(sizing.signal_lead_s, UINT16_MAX));
}

}  // namespace bellows
