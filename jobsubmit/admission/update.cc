// SPDX-License-Identifier: Apache-2.0
/// Admission of changes to a job that has its contract already.

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/pool_option.h"
#include "common/text.h"
#include "jobsubmit/admission/admission.h"
#include "jobsubmit/admission/sentence.h"
#include "jobsubmit/admission/tenant_choice.h"
#include "slurm/gres.h"

namespace bellows {
namespace {

constexpr const char* kResized =
    "an elastic job is resized with TresPerJob=" BELLOWS_GRES "gpu:N alone";

bool names_gpus(const Sizes& sizes) {
  return sizes.per_job || sizes.per_node || sizes.per_socket || sizes.per_task;
}

bool says_anything(const Sizes& sizes) {
  return names_gpus(sizes) || sizes.tasks || sizes.min_nodes || sizes.max_nodes ||
         sizes.tasks_per_node || sizes.tasks_per_gpu;
}

bool same_types(std::vector<std::string> one, std::vector<std::string> other) {
  std::sort(one.begin(), one.end());
  std::sort(other.begin(), other.end());
  return one == other;
}

/// Holds one update against the contract; each step returns false once it has refused.
class UpdateReview {
 public:
  UpdateReview(const Policy* policy, const Admitted& job, const Update& update)
      : policy_(policy), job_(job), update_(update) {
    if (policy_) tenant_ = policy_->find_tenant(job.contract.tenant);
  }

  UpdateDecision decide() {
    // Of a plain job, all but its tenant's images is as Slurm has it.
    if (job_.contract.is_plain()) {
      (void)(stays_in_tenant() && keeps_reservation());
      return std::move(decision_);
    }
    (void)(stays_in_tenant() && keeps_partition() && keeps_reservation() && keeps_qos() &&
           keeps_time() && keeps_shares() && keeps_requeueing() && keeps_nodes() && change_size());
    if (decision_.refused) decision_.changes = {};
    return std::move(decision_);
  }

 private:
  bool refuse(Refusal why, std::string message) {
    decision_.refused = why;
    decision_.message = std::move(message);
    return false;
  }
  /// For a change that only the policy can allow.
  bool has_tenant(std::string_view what) {
    if (tenant_) return true;
    return refuse(Refusal::unavailable,
                  policy_
                      ? fmt::format("tenant {}, for which the job was admitted, is no longer in "
                                    "bellows.yaml, so its {} cannot be changed; cancel it and "
                                    "submit it again",
                                    job_.contract.tenant, what)
                      : fmt::format("there is no policy to check a change of the {} against; tell "
                                    "the administrator",
                                    what));
  }
  /// What the job owes to its tenant.
  std::string admission() const {
    return (job_.contract.is_plain() ? "the job's steps may use the container images of tenant "
                                     : "the job was admitted for tenant ") +
           job_.contract.tenant;
  }
  bool elastic() const { return job_.contract.gpus.min() != job_.contract.gpus.max(); }
  std::string range() const { return job_.contract.gpus.to_string(); }
  const GpuLimits* limits() const {
    return tenant_ ? &tenant_->limits_for(job_.contract.framework, job_.contract.framework_version)
                   : nullptr;
  }
  std::uint32_t node_gpus() const {
    return static_cast<std::uint32_t>(
        parse_uint(job_.contract.extra_value(Contract::kNodeGpusKey)).value_or(0));
  }

  bool stays_in_tenant();
  bool keeps_partition();
  bool keeps_reservation();
  bool keeps_qos();
  bool keeps_time();
  bool keeps_shares();
  bool keeps_requeueing();
  bool keeps_nodes();
  bool keeps_cpus(const GpuRequest& now);
  std::uint32_t cap_nodes();
  bool change_size();
  bool keeps_form(const GpuRequest& next);
  bool keeps_types(const GpuRequest& now, const GpuRequest& next);
  bool resize(const GpuRequest& now, const GpuRequest& next);
  bool set_nodes(std::uint32_t gpus);
  void keep_place(std::uint32_t gpus);

  const Policy* policy_;
  const Admitted& job_;
  const Update& update_;
  const Tenant* tenant_ = nullptr;
  UpdateDecision decision_;
};

bool UpdateReview::stays_in_tenant() {
  if (!update_.account && !update_.partition) return true;
  Origin origin = job_.origin;
  if (update_.account) {
    origin.account = *update_.account;
    origin.parents = update_.parents;
  }
  if (update_.partition) origin.partition = *update_.partition;
  const TenantChoice choice = policy_ ? choose_tenant(*policy_, origin) : TenantChoice();
  if (choice.tenant && choice.tenant == tenant_) return true;
  if (!policy_ && update_.account)
    return refuse(Refusal::account,
                  "there is no policy to check a change of the account against; tell the "
                  "administrator");
  if (choice.why == Refusal::unavailable) return refuse(choice.why, choice.message);
  if (update_.account)
    return refuse(Refusal::account,
                  fmt::format("{}, and account \"{}\" is not one of its accounts; cancel the job "
                              "and submit it again",
                              admission(), shown(*update_.account)));
  if (!has_tenant("partition")) return false;
  return refuse(Refusal::policy,
                fmt::format("{}, and partition \"{}\" is not one of its partitions; cancel the job "
                            "and submit it again",
                            admission(), shown(*update_.partition)));
}

bool UpdateReview::keeps_partition() {
  if (!update_.partition) return true;
  std::string why = refuse_partitions(*tenant_, *update_.partition);
  return why.empty() || refuse(Refusal::policy, std::move(why));
}

bool UpdateReview::keeps_reservation() {
  if (!update_.reservation || !moves(*update_.reservation, job_.partition_by_slurm)) return true;
  if (!has_tenant("reservation")) return false;
  return !minds_partition(*policy_, *tenant_) || refuse(Refusal::policy, kMovedByReservations);
}

bool UpdateReview::keeps_qos() {
  if (!update_.qos || update_.qos->empty()) return true;
  if (!has_tenant("QOS")) return false;
  std::string why = refuse_qos(*tenant_, *update_.qos);
  return why.empty() || refuse(Refusal::policy, std::move(why));
}

bool UpdateReview::keeps_time() {
  const auto minutes = update_.time_limit;
  if (!minutes || (job_.time_limit && *minutes <= *job_.time_limit)) return true;
  if (!has_tenant("time limit")) return false;
  std::string why = refuse_time(*tenant_, *minutes, "TimeLimit");
  return why.empty() || refuse(Refusal::policy, std::move(why));
}

/// They are for each GPU, so they need no change when the number of GPUs changes.
bool UpdateReview::keeps_shares() {
  const auto changed = [](const std::optional<std::string>& to, const std::string& from) {
    return to && *to != from;
  };
  if (!changed(update_.cpus_per_gpu, job_.cpus_per_gpu) &&
      !changed(update_.memory_per_gpu, job_.memory_per_gpu))
    return true;
  return refuse(Refusal::policy,
                "the CPUs and the memory for each GPU of an admitted job cannot be changed; cancel "
                "it and submit it again");
}

bool UpdateReview::keeps_requeueing() {
  const auto pool = PoolOption::parse(job_.contract.extra_value(Contract::kPoolKey));
  if (update_.requeue_off && pool.ok() && pool->is_keeper())
    return refuse(Refusal::option,
                  "the keeper of a pool is requeued when it loses its node, so requeueing stays "
                  "on");
  if (!update_.requeue_off || !elastic()) return true;
  return refuse(Refusal::option, fmt::format("the job was admitted for {} and is resized by "
                                             "requeueing it, so requeueing stays on",
                                             counted(range(), "GPU")));
}

/// A number of nodes within what the job already may have needs no permission.
bool UpdateReview::keeps_nodes() {
  const auto now = job_.sizes.max_nodes;
  const std::uint64_t none = UINT64_MAX;
  const auto limit_of = [none](std::uint32_t most) { return most == 0 ? none : most; };
  const std::uint64_t before = now ? limit_of(*now) : none;
  if (!update_.sizes.max_nodes && !update_.sizes.min_nodes) return true;
  std::uint64_t after = update_.sizes.max_nodes ? limit_of(*update_.sizes.max_nodes) : before;
  if (update_.sizes.max_nodes == 0u && update_.sizes.per_job) after = limit_of(cap_nodes());
  if (update_.sizes.min_nodes &&
      (*update_.sizes.min_nodes > after || (after == none && !update_.sizes.max_nodes)))
    after = *update_.sizes.min_nodes;
  if (now && after > before && !has_tenant("number of nodes")) return false;
  const std::uint32_t most = limits() ? limits()->max_nodes : 0;
  if (most == 0 || after <= most || (now && after <= before)) return true;
  if (!update_.sizes.max_nodes && after == none) return true;
  return refuse(Refusal::policy,
                fmt::format("a job of tenant {} may have {} at most; ask for no more",
                            tenant_->name, counted(most, "node")));
}

/// Slurm gives GPUs for each task by the CPUs.
bool UpdateReview::keeps_cpus(const GpuRequest& now) {
  return !update_.cpus_said || !now.for_tasks ||
         refuse(Refusal::gpus,
                "the job asked for GPUs for each task, and Slurm would give it more of them with "
                "more CPUs or memory on a node, so these cannot be changed; cancel it and submit "
                "it again");
}

/// A resize without a largest number of nodes means as many as a job may have: those of the first
/// size say nothing about another one. 0: no limit.
std::uint32_t UpdateReview::cap_nodes() {
  const std::uint32_t now = job_.sizes.max_nodes.value_or(0);
  const std::uint32_t most = tenant_ ? limits()->max_nodes : now;
  if (most == 0) return 0;
  decision_.changes.max_nodes = std::max(most, now);
  return *decision_.changes.max_nodes;
}

bool UpdateReview::change_size() {
  if (!says_anything(update_.sizes) && !update_.cpus_said) return true;
  auto now = count_gpus(job_.sizes);
  if (now && *now && !keeps_cpus(**now)) return false;
  if (!says_anything(update_.sizes)) return true;
  // Slurm then puts a number of its own in the place of the GPUs asked for.
  // 22.05 leaves ntasks_per_tres out of its record: GPUs that no field names are by tasks.
  const bool by_tasks = now && (*now ? (*now)->form == GpuRequest::Form::per_gpu_tasks
                                     : !job_.contract.gpus.is_none());
  if (by_tasks && names_gpus(update_.sizes))
    return refuse(Refusal::gpus,
                  "the job asked for tasks on each GPU and not for GPUs, so these cannot be "
                  "changed; cancel it and submit it again");
  if (update_.sizes.tasks_per_gpu && !by_tasks)
    return refuse(Refusal::gpus,
                  "the job asked for GPUs and not for tasks on each, so that number cannot be "
                  "changed; cancel it and submit it again");
  auto next = count_gpus(merged(job_.sizes, update_.sizes));
  const Sizes& asked = update_.sizes;
  if (!next && elastic() && (asked.per_node || asked.per_socket || asked.per_task))
    return refuse(Refusal::gpus, kResized);
  if (!next) return refuse(Refusal::gpus, shown(next.error().text, 512));
  if (*next && !keeps_cpus(**next)) return false;
  const bool none = job_.contract.gpus.is_none();
  if (none && *next)
    return refuse(Refusal::policy,
                  "the job was admitted without GPUs, and an update cannot give it any; cancel it "
                  "and submit it again");
  if (none) return true;
  if (!*next)
    return refuse(Refusal::policy, fmt::format("the job was admitted for {} and cannot go without",
                                               counted(range(), "GPU")));
  if (!job_.contract.gpus.contains((*next)->gpus))
    return refuse(Refusal::policy,
                  fmt::format("the job was admitted for {}, and {} is not among these sizes",
                              counted(range(), "GPU"), (*next)->gpus));
  if (!now || !*now)
    return !elastic() || refuse(Refusal::gpus, "the job's present size cannot be read");
  return keeps_types(**now, **next) && (elastic() ? resize(**now, **next) : keeps_form(**next)) &&
         set_nodes((*next)->gpus);
}

/// Slurm works out nodes from GPUs only where GPUs are changed.
bool UpdateReview::keeps_form(const GpuRequest& next) {
  if (auto kept = keeps_fields(job_.sizes, update_.sizes); !kept.ok())
    return refuse(Refusal::gpus, shown(kept.error().text, 512));
  const Sizes sizes = merged(job_.sizes, update_.sizes);
  if (!next.nodes || (sizes.min_nodes == next.nodes && sizes.max_nodes == next.nodes)) return true;
  return refuse(Refusal::gpus,
                fmt::format("the job's {} take {}; change the number of nodes with them",
                            counted(next.gpus, "GPU"), counted(*next.nodes, "node")));
}

bool UpdateReview::keeps_types(const GpuRequest& now, const GpuRequest& next) {
  // A resize without a type keeps the one there is.
  const bool kept =
      elastic() ? next.type.empty() || next.type == now.type : same_types(next.types, now.types);
  return kept || refuse(Refusal::gpus,
                        "the GPU type of an admitted job cannot be changed; cancel it and "
                        "submit it again");
}

bool UpdateReview::resize(const GpuRequest& now, const GpuRequest& next) {
  if (next.form != GpuRequest::Form::per_job || next.mixed) return refuse(Refusal::gpus, kResized);
  if (!update_.sizes.per_job) return true;
  Changes& changes = decision_.changes;
  // One spelling, whatever the user wrote: the others are accepted by Slurm and do nothing.
  changes.per_job = spell_gpus(next.gpus, now.type);
  if (update_.sizes.tasks.value_or(next.gpus) == next.gpus && job_.sizes.tasks == now.gpus) {
    if (!update_.sizes.tasks) changes.tasks = next.gpus;
    changes.min_cpus = cpus_for(next.gpus, job_.sizes.cpus_per_task, job_.cpus_per_gpu);
  }
  // A job of two nodes that shrinks to one GPU would never start again.
  if (!update_.sizes.min_nodes && job_.sizes.min_nodes && *job_.sizes.min_nodes > next.gpus)
    changes.min_nodes = next.gpus;
  keep_place(next.gpus);
  return true;
}

/// Where the contract is for whole nodes, their number follows the GPUs.
bool UpdateReview::set_nodes(std::uint32_t gpus) {
  const std::uint32_t each = node_gpus();
  const Sizes& asked = update_.sizes;
  if (each == 0 || gpus % each != 0) return true;
  const std::uint32_t nodes = gpus / each;
  const std::uint32_t most = asked.max_nodes.value_or(0);
  if (asked.min_nodes.value_or(nodes) > nodes || (most > 0 && most < nodes))
    return refuse(Refusal::gpus,
                  fmt::format("the job has whole nodes of {}, so {} are {}; leave out the nodes",
                              counted(each, "GPU"), counted(gpus, "GPU"), counted(nodes, "node")));
  if (!asked.per_job && !asked.min_nodes && !asked.max_nodes) return true;
  decision_.changes.min_nodes = nodes;
  decision_.changes.max_nodes = nodes;
  return true;
}

/// A requeue takes the age of a job, and with it its place in the queue.
void UpdateReview::keep_place(std::uint32_t gpus) {
  if (!policy_ || policy_->resize_site_factor == 0 || !job_.has_run) return;
  if (!job_.contract.gpus.contains(gpus)) return;
  const std::uint64_t sum =
      std::uint64_t{policy_->resize_site_factor} + (tenant_ ? tenant_->sizing.site_factor : 0);
  decision_.changes.site_factor =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(sum, 1000000000));
}

}  // namespace

UpdateDecision decide_update(const Policy* policy, const Admitted& job, const Update& update) {
  return UpdateReview(policy, job, update).decide();
}

}  // namespace bellows
