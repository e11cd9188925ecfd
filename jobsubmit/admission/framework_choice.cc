// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "jobsubmit/admission/rules.h"
#include "jobsubmit/admission/sentence.h"

namespace bellows {
namespace {

std::string full_name(const std::string& name, const FrameworkVersion& version) {
  return version.version.empty() ? name : fmt::format("{}:{}", name, version.version);
}

/// Those that can still be asked for.
std::vector<std::string> live_versions(const Framework& framework) {
  std::vector<std::string> live;
  for (const FrameworkVersion& version : framework.versions)
    if (version.state != LifeCycle::removed) live.push_back(version.version);
  return live;
}

std::string advice(const FrameworkVersion& version) {
  return version.hint.empty() ? "" : "; " + shown(version.hint, 512);
}

void take_version(Review& review, const FrameworkVersion& version) {
  Contract& contract = review.decision.contract;
  contract.framework_version = version.version;
  contract.image = version.image;
  review.decision.env = version.env;
  review.limits = &review.tenant->limits_for(contract.framework, version.version);
  std::vector<std::string> kinds;
  for (LaunchKind kind : version.launch) kinds.emplace_back(launch_kind_name(kind));
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) contract.extra.emplace_back(key, value);
  };
  add(Contract::kPrefixKey, version.prefix);
  add(Contract::kLaunchKey, Contract::join_list(kinds));
  add(Contract::kMountsKey, Contract::join_list(version.mounts));
}

bool check_version(Review& review, const Framework& framework, const FrameworkVersion& version,
                   bool named) {
  const Tenant& tenant = *review.tenant;
  const std::string name = review.decision.contract.framework;
  if (version.state == LifeCycle::removed)
    return review.refuse(Refusal::option, fmt::format("framework {} was removed{}",
                                                      full_name(name, version), advice(version)));
  if (!tenant.permits(name, version.version)) {
    std::vector<std::string> permitted;
    for (const std::string& live : live_versions(framework))
      if (tenant.permits(name, live)) permitted.push_back(live);
    return review.refuse(
        Refusal::policy,
        fmt::format("tenant {} may not use framework {}; {}", tenant.name,
                    named ? full_name(name, version) : name,
                    !permitted.empty() ? fmt::format("of {} it may use version {}", name,
                                                     fmt::join(permitted, ", "))
                    : tenant.frameworks.empty()
                        ? "it may use none"
                        : fmt::format("it may use {}", fmt::join(tenant.frameworks, ", "))));
  }
  if (version.state == LifeCycle::deprecated)
    review.note(
        fmt::format("framework {} is deprecated{}", full_name(name, version), advice(version)));
  take_version(review, version);
  return true;
}

bool choose_version(Review& review, const std::string& name, const Framework& framework,
                    std::optional<std::string_view> wanted) {
  const Tenant& tenant = *review.tenant;
  if (wanted && framework.find(""))
    return review.refuse(Refusal::option,
                         fmt::format("framework {} has no versions to choose from; write "
                                     "--framework={}",
                                     name, name));
  const FrameworkVersion* version = framework.find(wanted.value_or(framework.default_version));
  if (wanted && !version)
    return review.refuse(Refusal::option,
                         fmt::format("framework {} has no version \"{}\"; {}", name, shown(*wanted),
                                     hint(*wanted, live_versions(framework))));
  // The default may be closed to this tenant while another version is open.
  if (!wanted && (!version || !tenant.permits(name, version->version)))
    for (const FrameworkVersion& other : framework.versions)
      if (other.state != LifeCycle::removed && tenant.permits(name, other.version)) {
        version = &other;
        break;
      }
  if (!version)
    return review.refuse(Refusal::option, fmt::format("framework {} has no version to use", name));
  return check_version(review, framework, *version, wanted.has_value());
}

}  // namespace

bool choose_framework(Review& review) {
  if (!review.request.framework) return true;
  const std::string_view value = *review.request.framework;
  const auto colon = value.find(':');
  const std::string name(value.substr(0, colon));
  const auto found = review.policy.frameworks.find(name);
  if (found == review.policy.frameworks.end()) {
    std::vector<std::string> known;
    for (const auto& [known_name, unused] : review.policy.frameworks) known.push_back(known_name);
    return review.refuse(Refusal::option, fmt::format("framework \"{}\" is not known here; {}",
                                                      shown(name), hint(name, known)));
  }
  review.decision.contract.framework = name;
  std::optional<std::string_view> wanted;
  if (colon != std::string_view::npos) wanted = value.substr(colon + 1);
  return choose_version(review, name, found->second, wanted);
}

}  // namespace bellows
