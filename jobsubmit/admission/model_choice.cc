// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "common/model_names.h"
#include "common/text.h"
#include "jobsubmit/admission/rules.h"
#include "jobsubmit/admission/sentence.h"

namespace bellows {
namespace {

std::vector<std::string> names_seen(const Review& review) {
  std::vector<std::string> names;
  for (const SiteModel& model : review.policy.models)
    if (model.is_seen_by(review.tenant->name)) names.push_back(model.name);
  return names;
}

/// Those of the job's framework that its tenant sees: it asked for none, so it lacks none.
void take_default_models(Review& review) {
  Contract& contract = review.decision.contract;
  const auto framework = review.policy.frameworks.find(contract.framework);
  if (framework == review.policy.frameworks.end()) return;
  const FrameworkVersion* version = framework->second.find(contract.framework_version);
  std::vector<std::string> names;
  for (const std::string& name : version ? version->models : std::vector<std::string>())
    if (review.policy.find_model(review.tenant->name, name)) names.push_back(name);
  if (!names.empty()) contract.extra.emplace_back(Contract::kModelsKey, Contract::join_list(names));
}

/// The contract's, of --model-on.
bool choose_place(Review& review) {
  if (!review.request.model_on) return true;
  const auto on_gpu = parse_model_on(*review.request.model_on);
  if (!on_gpu)
    return review.refuse(Refusal::option, "--model-on: " + shown(on_gpu.error().text, 512));
  if (!*on_gpu) return true;
  if (review.decision.contract.extra_value(Contract::kModelsKey).empty())
    return review.refuse(Refusal::option, "--model-on=gpu needs --model, which names models");
  if (review.size == 0)
    return review.refuse(Refusal::option,
                         "--model-on=gpu needs GPUs, and the job asks for none: see --gpus");
  review.decision.contract.extra.emplace_back(Contract::kModelOnKey, Contract::kOnGpu);
  return true;
}

}  // namespace

/// A sentence about a hidden model must not differ from one about a model that does not exist.
bool choose_models(Review& review) {
  if (!review.request.models) {
    take_default_models(review);
    return choose_place(review);
  }
  const auto names = parse_model_names(*review.request.models);
  if (!names) return review.refuse(Refusal::option, "--model: " + shown(names.error().text, 512));
  for (const std::string& name : *names) {
    if (review.policy.find_model(review.tenant->name, name)) continue;
    const auto seen = names_seen(review);
    const std::string near = nearest(name, seen);
    return review.refuse(
        Refusal::policy,
        fmt::format("there is no model {} for tenant {}{}", shown(name), review.tenant->name,
                    near.empty() ? "; ask the administrator which models it may use"
                                 : fmt::format("; did you mean \"{}\"?", near)));
  }
  review.decision.contract.extra.emplace_back(Contract::kModelsKey, Contract::join_list(*names));
  return choose_place(review);
}

}  // namespace bellows
