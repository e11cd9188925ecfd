// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/admission/admission.h"

#include <fmt/core.h>

#include <utility>

#include "common/text.h"
#include "jobsubmit/admission/desk.h"
#include "jobsubmit/admission/findings.h"
#include "jobsubmit/admission/rules.h"
#include "jobsubmit/admission/sentence.h"
#include "jobsubmit/admission/tenant_choice.h"

namespace bellows {

namespace {

std::string_view bellows_options(const Request& request) {
  return request.only_container() ? "--container options" : "--framework and --gpus-range";
}

/// Whether a contract fits without one of its extra keys.
bool small_without(Contract contract, std::string_view key) {
  std::erase_if(contract.extra, [key](const auto& entry) { return entry.first == key; });
  return contract.to_string().size() <= Contract::kMostBytes;
}

}  // namespace

bool Desk::job_kind() {
  if (request_.contradictory)
    return refuse(Refusal::option,
                  fmt::format("{} is given twice with different values; give it once",
                              request_.container     ? "an option of Bellows"
                              : request_.batch_range ? "--framework, --gpus-range or --batch-range"
                                                     : "--framework or --gpus-range"));
  if (request_.heterogeneous)
    return refuse(Refusal::option,
                  fmt::format("a heterogeneous job cannot have {}; submit its parts as separate "
                              "jobs",
                              request_.only_container() ? "--container options"
                                                        : "--framework or --gpus-range"));
  if (request_.whole_nodes)
    return refuse(
        Refusal::gpus,
        fmt::format("--exclusive and --core-spec give a job all GPUs of its nodes, "
                    "whatever it asks for, so they do not go with {}; leave them out, and "
                    "ask for as many GPUs as the job needs",
                    bellows_options(request_)));
  return true;
}

bool Desk::find_tenant() {
  TenantChoice choice = choose_tenant(policy_, request_);
  if (!choice.tenant) return refuse(choice.why, std::move(choice.message));
  tenant_ = choice.tenant;
  limits_ = &tenant_->gpus;
  if (!tenant_->suspended) return true;
  return refuse(Refusal::policy,
                fmt::format("tenant {} is suspended: {}", tenant_->name, *tenant_->suspended));
}

bool Desk::choose_batch_range() {
  if (!request_.batch_range) return true;
  auto range = BatchRange::parse(*request_.batch_range);
  if (!range) return refuse(Refusal::option, shown(range.error().text, 512));
  if (!tenant_->wide_batch)
    return refuse(Refusal::policy,
                  fmt::format("tenant {} may not use --batch-range; leave it out", tenant_->name));
  decision_.contract.batch = *range;
  return true;
}

bool Desk::fill_in() {
  spell_size();
  choose_shares();
  choose_signal();
  Contract& contract = decision_.contract;
  contract.tenant = tenant_->name;
  contract.checkpoint_dir = policy_.checkpoint_dir;
  contract.gpus = range_;
  if (policy_.checkpoint_access != Access::owner)
    contract.extra.emplace_back(Contract::kAccessKey, access_name(policy_.checkpoint_access));
  if (limits_->gpus_per_node > 0 && !range_.is_none())
    contract.extra.emplace_back(Contract::kNodeGpusKey, std::to_string(limits_->gpus_per_node));
  if (tenant_->sizing.site_factor > 0) decision_.changes.site_factor = tenant_->sizing.site_factor;
  decision_.requeue = request_.batch && !request_.requeue_off;
  if (elastic() && !request_.batch) {
    contract.gpus = GpusRange::between(size_, size_);
    note(
        fmt::format("the job keeps {}: only jobs of sbatch can be resized", counted(size_, "GPU")));
  }
  return fits_contract();
}

bool Desk::fits_contract() {
  const Contract& contract = decision_.contract;
  if (contract.to_string().size() <= Contract::kMostBytes) return true;
  Contract small = contract;
  small.gpus = GpusRange::between(1, 1);
  if (small.to_string().size() <= Contract::kMostBytes)
    return refuse(Refusal::option,
                  fmt::format("--gpus-range lists too many sizes for a job contract of {} bytes; "
                              "write it as MIN-MAX or MIN-MAX:STEP",
                              Contract::kMostBytes));
  if (request_.container && small_without(contract, Contract::kContainerKey))
    return refuse(
        Refusal::option,
        fmt::format("the --container options are too long for a job contract of {} bytes; "
                    "shorten paths, or mount a directory above several",
                    Contract::kMostBytes));
  if (contract.framework.empty())
    return refuse(
        Refusal::policy,
        fmt::format("what bellows.yaml says of tenant {} does not fit a job contract of {} "
                    "bytes; ask the administrator to shorten its images",
                    tenant_->name, Contract::kMostBytes));
  return refuse(Refusal::policy,
                fmt::format("what bellows.yaml says of framework {} does not fit a job contract of "
                            "{} bytes; ask the administrator to shorten its mounts and prefix",
                            contract.framework, Contract::kMostBytes));
}

namespace {

struct Rule {
  const char* name;
  bool (*decide)(Review&);              ///< false: it has refused
  void (*tell)(const Review&, Trace&);  ///< null: nothing to tell when it passes
};

template <bool (Desk::*rule)()>
bool at_desk(Review& review) {
  return (Desk(review).*rule)();
}

/// In their order: each builds on what those before it have settled.
constexpr Rule kRules[] = {
    {"kind of job", at_desk<&Desk::job_kind>, nullptr},
    {"tenant", at_desk<&Desk::find_tenant>, tell_tenant},
    {"framework", choose_framework, tell_framework},
    {"container", choose_container, tell_container},
    {"range", choose_range, tell_range},
    {"GPU type", choose_type, tell_type},
    {"first size", choose_size, tell_size},
    {"nodes", at_desk<&Desk::choose_nodes>, tell_nodes},
    {"partition and QOS", at_desk<&Desk::choose_partition>, tell_partition},
    {"time limit", at_desk<&Desk::choose_time>, tell_time},
    {"batch range", at_desk<&Desk::choose_batch_range>, tell_batch_range},
    {"contract", at_desk<&Desk::fill_in>, tell_terms},
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
      why_not, bellows_options(request));
  return decision;
}

}  // namespace bellows
