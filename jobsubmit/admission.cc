// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/admission.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "common/text.h"

namespace bellows {
namespace {

/// A user's text, safe to show: short, and without bytes that move a terminal.
std::string shown(std::string_view text, std::size_t most = 64) {
  std::string out(text.substr(0, most));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return out;
}

/// `did you mean "X"?`, or what there is when nothing is near.
std::string hint(std::string_view word, const std::vector<std::string>& known) {
  const std::string match = nearest(word, known);
  return match.empty() ? fmt::format("known are {}", fmt::join(known, ", "))
                       : fmt::format("did you mean \"{}\"?", match);
}

std::string plural(std::uint32_t gpus) {
  return fmt::format("{} GPU{}", gpus, gpus == 1 ? "" : "s");
}

/// Makes one decision; each step returns false once it has refused.
class Desk {
 public:
  Desk(const Policy& policy, const Request& request) : policy_(policy), request_(request) {}

  Decision decide() {
    (void)(job_kind() && find_tenant() && choose_framework() && choose_range() && choose_size() &&
           fill_in());
    return std::move(decision_);
  }

 private:
  bool refuse(Refusal why, std::string message) {
    decision_.refused = why;
    decision_.message = std::move(message);
    return false;
  }
  bool elastic() const { return range_.min() != range_.max(); }

  bool job_kind();
  bool find_tenant();
  bool choose_framework();
  bool choose_version(const std::string& name, const Framework& framework,
                      std::optional<std::string_view> wanted);
  bool parse_range();
  bool choose_range();
  bool keeps_meaning();
  bool choose_size();
  bool check_tasks();
  bool fill_in();
  void spell_size();

  const Policy& policy_;
  const Request& request_;
  Decision decision_;
  const Tenant* tenant_ = nullptr;
  std::optional<GpuRequest> asked_;
  GpusRange range_ = GpusRange::between(1, 1);
  std::uint32_t size_ = 1;
};

bool Desk::job_kind() {
  if (request_.contradictory)
    return refuse(Refusal::option,
                  "--framework or --gpus-range is given twice with different values; give it once");
  if (request_.heterogeneous)
    return refuse(
        Refusal::option,
        "a heterogeneous job cannot have --framework or --gpus-range; submit its parts as "
        "separate jobs");
  if (request_.whole_nodes)
    return refuse(Refusal::gpus,
                  "--exclusive and --core-spec give a job all GPUs of its nodes, whatever it asks "
                  "for, so they do not go with --framework and --gpus-range; leave them out, and "
                  "ask for as many GPUs as the job needs");
  return true;
}

bool Desk::find_tenant() {
  tenant_ = policy_.tenant_of(request_.account);
  if (tenant_) return true;
  if (request_.account.empty())
    return refuse(Refusal::account,
                  "the job has no account and you have no default one, so it belongs to no tenant; "
                  "name an account with --account");
  return refuse(Refusal::account,
                fmt::format("account \"{}\" belongs to no tenant of Bellows; name another account "
                            "with --account, or ask the administrator to add it to bellows.yaml",
                            shown(request_.account)));
}

bool Desk::choose_framework() {
  if (!request_.framework) return true;
  const std::string_view value = *request_.framework;
  const auto colon = value.find(':');
  const std::string name(value.substr(0, colon));
  const auto found = policy_.frameworks.find(name);
  if (found == policy_.frameworks.end()) {
    std::vector<std::string> known;
    for (const auto& [known_name, unused] : policy_.frameworks) known.push_back(known_name);
    return refuse(Refusal::option, fmt::format("framework \"{}\" is not known here; {}",
                                               shown(name), hint(name, known)));
  }
  decision_.contract.framework = name;
  decision_.env = found->second.env;
  std::optional<std::string_view> wanted;
  if (colon != std::string_view::npos) wanted = value.substr(colon + 1);
  return choose_version(name, found->second, wanted);
}

bool Desk::choose_version(const std::string& name, const Framework& framework,
                          std::optional<std::string_view> wanted) {
  const std::vector<std::string>& versions = framework.versions;
  if (wanted && versions.empty())
    return refuse(Refusal::option, fmt::format("framework {} has no versions to choose from; write "
                                               "--framework={}",
                                               name, name));
  if (wanted && std::find(versions.begin(), versions.end(), *wanted) == versions.end())
    return refuse(Refusal::option, fmt::format("framework {} has no version \"{}\"; {}", name,
                                               shown(*wanted), hint(*wanted, versions)));
  std::vector<std::string> permitted;
  for (const std::string& version : versions)
    if (tenant_->permits(name, version)) permitted.push_back(version);
  std::string version(wanted.value_or(framework.default_version));
  // The default may be closed to this tenant while another version is open.
  if (!wanted && !permitted.empty() && !tenant_->permits(name, version))
    version = permitted.front();
  if (!tenant_->permits(name, version)) {
    const std::string full =
        version.empty() || !wanted ? name : fmt::format("{}:{}", name, version);
    return refuse(Refusal::policy,
                  fmt::format("tenant {} may not use framework {}; {}", tenant_->name, full,
                              permitted.empty() ? fmt::format("it may use {}",
                                                              fmt::join(tenant_->frameworks, ", "))
                                                : fmt::format("of {} it may use version {}", name,
                                                              fmt::join(permitted, ", "))));
  }
  decision_.contract.framework_version = version;
  return true;
}

bool Desk::parse_range() {
  auto parsed = GpusRange::parse(*request_.gpus_range);
  if (!parsed) return refuse(Refusal::option, shown(parsed.error().text, 512));
  range_ = *std::move(parsed);
  return true;
}

bool Desk::choose_range() {
  auto asked = count_gpus(request_.sizes);
  if (!asked) return refuse(Refusal::gpus, shown(asked.error().text, 512));
  asked_ = *std::move(asked);
  if (request_.gpus_range) {
    if (!parse_range()) return false;
  } else {
    const std::uint32_t size = asked_ ? asked_->gpus : tenant_->gpus.start;
    range_ = GpusRange::between(size, size);
  }
  const GpusRange allowed = tenant_->gpus.sizes();
  for (std::uint32_t size : range_.sizes())
    if (!allowed.contains(size)) {
      const std::string wanted = request_.gpus_range ? fmt::format("--gpus-range={} includes {}",
                                                                   range_.to_string(), plural(size))
                                                     : asked_->option;
      return refuse(Refusal::policy,
                    fmt::format("{}, but a job of tenant {} may have {} GPUs; ask for sizes among "
                                "these",
                                wanted, tenant_->name, allowed.to_string()));
    }
  return true;
}

/// An elastic job is spelled --gpus=N with N tasks, so that a resize can spell it so. What can't
/// be said that way is refused, rather than silently changed.
bool Desk::keeps_meaning() {
  if (!elastic() || !request_.batch) return true;
  const std::string range = fmt::format("--gpus-range={}", range_.to_string());
  const auto clash = [&](std::string_view option, std::string_view advice) {
    return refuse(Refusal::gpus, fmt::format("{} cannot be kept when the job is resized within {}; "
                                             "{}",
                                             option, range, advice));
  };
  if (request_.requeue_off)
    return refuse(Refusal::option,
                  fmt::format("--no-requeue contradicts {}: a job is resized by requeueing it; "
                              "leave out --no-requeue or give a single size",
                              range));
  if (asked_ && asked_->mixed)
    return clash("a GPU request of several parts", "give one number with --gpus");
  if (request_.sizes.tasks_per_node)
    return clash("--ntasks-per-node", "leave it out: there is one task for each GPU");
  if (request_.sizes.tasks_per_gpu && *request_.sizes.tasks_per_gpu != 1)
    return clash("--ntasks-per-gpu", "leave it out: there is one task for each GPU");
  return true;
}

bool Desk::choose_size() {
  if (!keeps_meaning()) return false;
  const Sizes& sizes = request_.sizes;
  if (asked_) {
    size_ = asked_->gpus;
    if (!range_.contains(size_))
      return refuse(Refusal::gpus,
                    fmt::format("{} is not one of the sizes of --gpus-range={}; choose one of them "
                                "or leave it out",
                                asked_->option, range_.to_string()));
    return check_tasks();
  }
  if (elastic() && sizes.tasks) {
    size_ = *sizes.tasks;
    if (range_.contains(size_)) return true;
    return refuse(
        Refusal::gpus,
        fmt::format("--ntasks={} is not one of the sizes of --gpus-range={}, and there is "
                    "one task for each GPU; choose one of them or leave it out",
                    size_, range_.to_string()));
  }
  size_ = range_.clamp(tenant_->gpus.start);
  if (!sizes.min_nodes || size_ >= *sizes.min_nodes) return true;
  const auto enough =
      std::lower_bound(range_.sizes().begin(), range_.sizes().end(), *sizes.min_nodes);
  if (enough == range_.sizes().end())
    return refuse(Refusal::gpus,
                  fmt::format("--nodes={} needs at least {}, more than "
                              "--gpus-range={} allows; ask for fewer nodes",
                              *sizes.min_nodes, plural(*sizes.min_nodes), range_.to_string()));
  size_ = *enough;
  return true;
}

bool Desk::check_tasks() {
  const auto tasks = request_.sizes.tasks;
  if (!elastic() || !request_.batch || !tasks || *tasks == size_) return true;
  return refuse(
      Refusal::gpus,
      fmt::format("{} gives {} to {} tasks, but an elastic job has one task for each GPU; "
                  "leave out --ntasks, or give a single size with --gpus-range",
                  asked_->option, plural(size_), *tasks));
}

void Desk::spell_size() {
  Changes& changes = decision_.changes;
  const Sizes& sizes = request_.sizes;
  if (elastic() && request_.batch) {
    changes.per_job = spell_gpus(size_, asked_ ? asked_->type : "");
    if (sizes.per_node && asked_) changes.per_node = asked_->other_per_node;
    if (sizes.per_task) changes.per_task = "";
    changes.tasks = size_;
  } else {
    if (!asked_) changes.per_job = spell_gpus(size_, "");
    if (!sizes.tasks && !sizes.tasks_per_node && !sizes.tasks_per_gpu) changes.tasks = size_;
    // Without an upper limit Slurm may add nodes, and with them GPUs, for the sake of CPUs.
    if (asked_ && asked_->form == GpuRequest::Form::per_node && !sizes.max_nodes) {
      changes.min_nodes = sizes.min_nodes.value_or(1);
      changes.max_nodes = changes.min_nodes;
    }
  }
  if (changes.tasks) changes.min_cpus = *changes.tasks * sizes.cpus_per_task;
}

bool Desk::fill_in() {
  spell_size();
  Contract& contract = decision_.contract;
  contract.tenant = tenant_->name;
  contract.checkpoint_dir = policy_.checkpoint_dir;
  contract.gpus = range_;
  decision_.requeue = request_.batch && !request_.requeue_off;
  if (elastic() && !request_.batch) {
    contract.gpus = GpusRange::between(size_, size_);
    decision_.message =
        fmt::format("the job keeps {}: only jobs of sbatch can be resized", plural(size_));
  }
  if (contract.to_string().size() <= Contract::kMostBytes) return true;
  return refuse(Refusal::option, fmt::format("--gpus-range lists too many sizes for a job contract "
                                             "of {} bytes; write it as MIN-MAX or MIN-MAX:STEP",
                                             Contract::kMostBytes));
}

}  // namespace

Decision decide(const Policy* policy, std::string_view why_not, const Request& request) {
  if (policy) return Desk(*policy, request).decide();
  Decision decision;
  decision.refused = Refusal::unavailable;
  decision.message = fmt::format(
      "there is no policy to admit this job by ({}); tell the administrator, or submit it without "
      "--framework and --gpus-range",
      why_not);
  return decision;
}

namespace {

Sizes merged(const Sizes& now, const Sizes& update) {
  Sizes sizes = now;
  const auto take = [](auto& to, const auto& from) {
    if (from) to = from;
  };
  take(sizes.per_job, update.per_job);
  take(sizes.per_node, update.per_node);
  take(sizes.per_socket, update.per_socket);
  take(sizes.per_task, update.per_task);
  take(sizes.tasks, update.tasks);
  take(sizes.min_nodes, update.min_nodes);
  take(sizes.max_nodes, update.max_nodes);
  take(sizes.tasks_per_gpu, update.tasks_per_gpu);
  return sizes;
}

UpdateDecision no(Refusal why, std::string message) { return {why, std::move(message), {}}; }

UpdateDecision resize(const Policy* policy, const Admitted& job, const Update& update,
                      const GpuRequest& now, const GpuRequest& next) {
  const Contract& contract = job.contract;
  if (next.form != GpuRequest::Form::per_job || next.mixed)
    return no(Refusal::gpus, "an elastic job is resized with TresPerJob=gres:gpu:N alone");
  if (!next.type.empty() && next.type != now.type)
    return no(Refusal::gpus,
              "the GPU type of an admitted job cannot be changed; cancel it and "
              "submit it again");
  UpdateDecision decision;
  if (!update.sizes.per_job) return decision;
  // One spelling, whatever the user wrote: the others are accepted by Slurm and do nothing.
  decision.changes.per_job = spell_gpus(next.gpus, now.type);
  if (!update.sizes.tasks && job.sizes.tasks == now.gpus) {
    decision.changes.tasks = next.gpus;
    decision.changes.min_cpus = next.gpus * job.sizes.cpus_per_task;
  }
  // A job of two nodes that shrinks to one GPU would never start again.
  if (!update.sizes.min_nodes && job.sizes.min_nodes && *job.sizes.min_nodes > next.gpus)
    decision.changes.min_nodes = next.gpus;
  if (policy && policy->resize_site_factor > 0 && job.has_run && contract.gpus.contains(next.gpus))
    decision.changes.site_factor = policy->resize_site_factor;
  return decision;
}

}  // namespace

UpdateDecision decide_update(const Policy* policy, const Admitted& job, const Update& update) {
  const Contract& contract = job.contract;
  const bool elastic = contract.gpus.min() != contract.gpus.max();
  if (update.account) {
    const Tenant* tenant = policy ? policy->tenant_of(*update.account) : nullptr;
    if (!tenant || tenant->name != contract.tenant)
      return no(Refusal::account,
                fmt::format("the job was admitted for tenant {}, and account \"{}\" is not one of "
                            "its accounts; cancel the job and submit it again",
                            contract.tenant, shown(*update.account)));
  }
  if (update.requeue_off && elastic)
    return no(Refusal::option, fmt::format("the job was admitted for {} GPUs and is resized by "
                                           "requeueing it, so requeueing stays on",
                                           contract.gpus.to_string()));
  auto next = count_gpus(merged(job.sizes, update.sizes));
  if (!next) return no(Refusal::gpus, shown(next.error().text, 512));
  if (!*next)
    return no(Refusal::policy, fmt::format("the job was admitted for {} GPUs and cannot go without",
                                           contract.gpus.to_string()));
  if (!contract.gpus.contains((*next)->gpus))
    return no(Refusal::policy,
              fmt::format("the job was admitted for {} GPUs, and {} is not among these sizes",
                          contract.gpus.to_string(), (*next)->gpus));
  if (!elastic) return {};
  auto now = count_gpus(job.sizes);
  if (!now || !*now) return no(Refusal::gpus, "the job's present size cannot be read");
  return resize(policy, job, update, **now, **next);
}

}  // namespace bellows
