// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/admission/admission.h"

#include <fmt/core.h>

#include <utility>

#include "common/text.h"
#include "jobsubmit/admission/findings.h"
#include "jobsubmit/admission/rules.h"
#include "jobsubmit/admission/sentence.h"
#include "jobsubmit/admission/tenant_choice.h"

namespace bellows {

namespace {

std::string_view bellows_options(const Request& request, const char* other) {
  if (!request.keeps_gpus()) return other;
  return request.container ? "--container options" : request.pool ? "--pool" : "--model";
}

/// Whether a contract fits without one of its extra keys.
bool small_without(Contract contract, std::string_view key) {
  std::erase_if(contract.extra, [key](const auto& entry) { return entry.first == key; });
  return contract.to_string().size() <= Contract::kMostBytes;
}

bool job_kind(Review& review) {
  const Request& request = review.request;
  if (request.contradictory)
    return review.refuse(
        Refusal::option,
        fmt::format("{} is given twice with different values; give it once",
                    request.container || request.models || request.pool ? "an option of Bellows"
                    : request.job_class ? "--framework, --gpus-range, --batch-range or --job-class"
                    : request.batch_range ? "--framework, --gpus-range or --batch-range"
                                          : "--framework or --gpus-range"));
  if (request.heterogeneous)
    return review.refuse(
        Refusal::option,
        fmt::format("a heterogeneous job cannot have {}; submit its parts as separate jobs",
                    bellows_options(request, "--framework or --gpus-range")));
  if (request.whole_nodes)
    return review.refuse(
        Refusal::gpus,
        fmt::format("--exclusive and --core-spec give a job all GPUs of its nodes, "
                    "whatever it asks for, so they cannot be combined with {}; leave them out, and "
                    "ask for as many GPUs as the job needs",
                    bellows_options(request, "--framework and --gpus-range")));
  return true;
}

bool find_tenant(Review& review) {
  TenantChoice choice = choose_tenant(review.policy, review.request);
  if (!choice.tenant) return review.refuse(choice.why, std::move(choice.message));
  review.tenant = choice.tenant;
  review.limits = &review.tenant->gpus;
  if (!review.tenant->suspended) return true;
  return review.refuse(
      Refusal::policy,
      fmt::format("tenant {} is suspended: {}", review.tenant->name, *review.tenant->suspended));
}

bool choose_batch_range(Review& review) {
  const Request& request = review.request;
  if (!request.batch_range) return true;
  auto range = BatchRange::parse(*request.batch_range);
  if (!range) return review.refuse(Refusal::option, shown(range.error().text, 512));
  if (!review.tenant->wide_batch)
    return review.refuse(
        Refusal::policy,
        fmt::format("tenant {} may not use --batch-range; leave it out", review.tenant->name));
  review.decision.contract.batch = *range;
  return true;
}

bool choose_job_class(Review& review) {
  if (!review.request.job_class) return true;
  auto name = parse_job_class(*review.request.job_class);
  if (!name) return review.refuse(Refusal::option, shown(name.error().text, 512));
  review.decision.contract.job_class = *std::move(name);
  return true;
}

bool fits_contract(Review& review) {
  const Tenant& tenant = *review.tenant;
  const Contract& contract = review.decision.contract;
  if (contract.to_string().size() <= Contract::kMostBytes) return true;
  Contract small = contract;
  small.gpus = GpusRange::between(1, 1);
  if (small.to_string().size() <= Contract::kMostBytes)
    return review.refuse(
        Refusal::option,
        fmt::format("--gpus-range lists too many sizes for a job contract of {} bytes; "
                    "write it as MIN-MAX or MIN-MAX:STEP",
                    Contract::kMostBytes));
  if (review.request.container && small_without(contract, Contract::kContainerKey))
    return review.refuse(
        Refusal::option,
        fmt::format("the --container options are too long for a job contract of {} bytes; "
                    "shorten paths, or mount a directory above several",
                    Contract::kMostBytes));
  if (review.request.models && small_without(contract, Contract::kModelsKey))
    return review.refuse(Refusal::option,
                         fmt::format("the names of --model are too long for a job contract of {} "
                                     "bytes; ask for fewer models",
                                     Contract::kMostBytes));
  if (contract.framework.empty())
    return review.refuse(
        Refusal::policy,
        fmt::format("what bellows.yaml says about tenant {} does not fit into a job contract of {} "
                    "bytes; ask the administrator to shorten its images",
                    tenant.name, Contract::kMostBytes));
  return review.refuse(
      Refusal::policy,
      fmt::format("what bellows.yaml says about framework {} does not fit into a job contract of "
                  "{} bytes; ask the administrator to shorten its mounts, models and prefix",
                  contract.framework, Contract::kMostBytes));
}

/// Who may change the job's size, and where bellowsd is that may.
void settle_elasticity(Review& review) {
  if (!review.elastic()) return;
  Contract& contract = review.decision.contract;
  const auto keep_size = [&](std::string_view why) {
    contract.gpus = GpusRange::between(review.size, review.size);
    review.note(fmt::format("the job keeps {}: {}", counted(review.size, "GPU"), why));
  };
  if (!review.request.batch) return keep_size("only jobs submitted with sbatch can be resized");
  const Elasticity elastic = review.limits->elastic;
  if (elastic == Elasticity::off)
    return keep_size(fmt::format("{} are not resized", review.jobs_of_tenant()));
  const auto& controller = review.policy.controller;
  if (elastic != Elasticity::automatic || !controller) return;
  contract.extra.emplace_back(Contract::kControllerKey, controller->address.to_string());
}

bool fill_contract(Review& review) {
  spell_terms(review);
  Contract& contract = review.decision.contract;
  contract.tenant = review.tenant->name;
  contract.checkpoint_dir = review.policy.checkpoint_dir;
  contract.gpus = review.range;
  if (review.policy.checkpoint_access != Access::owner)
    contract.extra.emplace_back(Contract::kAccessKey, access_name(review.policy.checkpoint_access));
  if (review.limits->gpus_per_node > 0 && !review.range.is_none())
    contract.extra.emplace_back(Contract::kNodeGpusKey,
                                std::to_string(review.limits->gpus_per_node));
  if (review.tenant->sizing.site_factor > 0)
    review.decision.changes.site_factor = review.tenant->sizing.site_factor;
  review.decision.requeue = review.request.batch && !review.request.requeue_off;
  settle_elasticity(review);
  return fits_contract(review);
}

struct Rule {
  const char* name;
  bool (*decide)(Review&);              ///< false: it has refused
  void (*tell)(const Review&, Trace&);  ///< null: nothing to tell when it passes
};

/// In their order: each builds on what those before it have settled.
constexpr Rule kRules[] = {
    {"kind of job", job_kind, nullptr},
    {"tenant", find_tenant, tell_tenant},
    {"framework", choose_framework, tell_framework},
    {"container", choose_container, tell_container},
    {"pool", choose_pool, tell_pool},
    {"range", choose_range, tell_range},
    {"GPU type", choose_type, tell_type},
    {"first size", choose_size, tell_size},
    {"nodes", choose_nodes, tell_nodes},
    {"partition and QOS", choose_partition, tell_partition},
    {"time limit", choose_time, tell_time},
    {"batch range", choose_batch_range, tell_batch_range},
    {"models", choose_models, tell_models},
    {"job class", choose_job_class, tell_job_class},
    {"contract", fill_contract, tell_terms},
};

Decision decide_by_rules(const Policy& policy, const Request& request, Trace* trace) {
  Review review(policy, request);
  for (const Rule& rule : kRules) {
    if (!rule.decide(review)) {
      if (trace) trace->push_back({rule.name, review.decision.message});
      break;
    }
    if (trace && rule.tell) rule.tell(review, *trace);
  }
  return std::move(review.decision);
}

}  // namespace

Decision decide(const Policy* policy, std::string_view why_not, const Request& request,
                Trace* trace) {
  if (policy) return decide_by_rules(*policy, request, trace);
  Decision decision;
  decision.refused = Refusal::unavailable;
  decision.message = fmt::format(
      "there is no policy to admit this job by ({}); tell the administrator, or submit it without "
      "{}",
      why_not, bellows_options(request, "--framework and --gpus-range"));
  return decision;
}

}  // namespace bellows
