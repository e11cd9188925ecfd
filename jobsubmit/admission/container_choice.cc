// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "common/container/rights.h"
#include "common/container/spec_text.h"
#include "jobsubmit/admission/rules.h"
#include "jobsubmit/admission/sentence.h"
#include "jobsubmit/admission/tenant_choice.h"

namespace bellows {
namespace {

/// What a user can do whose tenant brings no image.
std::string without_own_image(const Contract& contract) {
  if (contract.framework.empty())
    return "it may bring none, so choose a framework with --framework";
  return fmt::format("it may bring none, so leave out --container-image; framework {} {}",
                     contract.framework,
                     contract.image.empty() ? "runs without one" : "has its own");
}

/// The framework's image needs no permission.
bool choose_image(Review& review, const std::string& image) {
  const Tenant& tenant = *review.tenant;
  Contract& contract = review.decision.contract;
  if (image.empty() || image == contract.image) return true;
  if (image == container::kHostImage)
    return review.refuse(
        Refusal::option,
        "--container-image=/ is for a step that is to run outside its job's container; "
        "give the job the path of a squashfs file or a directory");
  if (!container::permits_image(tenant.images, image))
    return review.refuse(
        Refusal::policy,
        fmt::format("tenant {} may not bring image {}; {}", tenant.name, shown(image, 512),
                    tenant.images.empty()
                        ? without_own_image(contract)
                        : fmt::format("it may bring {}", fmt::join(tenant.images, ", "))));
  contract.image = image;
  return true;
}

/// As with pyxis, unless the job has what the host's srun and munge are needed for.
void place_script(Review& review) {
  if (!review.request.batch) return;
  if (const char* service = review.request.service())
    return review.note(
        fmt::format("the batch script runs on the host, since the job has {}; what it starts with "
                    "srun runs in the image",
                    service));
  review.decision.contract.extra.emplace_back(Contract::kScriptKey, Contract::kInImage);
}

bool saves_something(Review& review) {
  if (!review.request.batch ||
      review.decision.contract.extra_value(Contract::kScriptKey) == Contract::kInImage)
    return true;
  return review.refuse(Refusal::option,
                       "--container-save would save nothing, since the batch script runs on the "
                       "host; give it to the srun whose container it is to save");
}

}  // namespace

const char* Request::service() const {
  const std::pair<const std::optional<std::string>*, const char*> services[] = {
      {&framework, "--framework"},
      {&gpus_range, "--gpus-range"},
      {&batch_range, "--batch-range"},
      {&job_class, "--job-class"},
      {&models, "--model"},
      {&model_on, "--model-on"},
      {&pool, "--pool"}};
  for (const auto& [value, name] : services)
    if (*value) return name;
  return nullptr;
}

bool choose_container(Review& review) {
  Contract& contract = review.decision.contract;
  const auto add = [&contract](const char* key, std::string value) {
    if (!value.empty()) contract.extra.emplace_back(key, std::move(value));
  };
  std::string options;
  if (review.request.container) {
    auto spec = container::parse_spec(*review.request.container);
    if (!spec) return review.refuse(Refusal::option, shown(spec.error().text, 512));
    if (!choose_image(review, spec->image)) return false;
    if (!spec->image.empty()) place_script(review);
    if (!spec->save.empty() && !saves_something(review)) return false;
    spec->image.clear();
    options = container::spec_text(*spec);
  }
  if (!contract.image.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : review.decision.env) names.push_back(name);
    add(Contract::kEnvKey, Contract::join_list(names));
  }
  add(Contract::kImagesKey, Contract::join_list(review.tenant->images));
  add(Contract::kContainerKey, std::move(options));
  return true;
}

std::optional<Contract> plain_contract(const Policy& policy, const Origin& origin) {
  if (!policy.has_images()) return std::nullopt;
  const Tenant* tenant = choose_tenant(policy, origin).tenant;
  if (!tenant || tenant->suspended || tenant->images.empty()) return std::nullopt;
  Contract contract;
  contract.tenant = tenant->name;
  contract.gpus = GpusRange::none();
  contract.extra = {{Contract::kImagesKey, Contract::join_list(tenant->images)},
                    {Contract::kPlainKey, "yes"}};
  if (contract.to_string().size() > Contract::kMostBytes) return std::nullopt;
  return contract;
}

}  // namespace bellows
