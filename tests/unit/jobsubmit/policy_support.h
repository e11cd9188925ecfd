// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>

#include <string>
#include <string_view>
#include <utility>

#include "jobsubmit/policy/policy.h"

namespace bellows {

inline Policy good(const std::string& text) {
  auto policy = load_policy(text, "b.yaml");
  cr_assert(policy.ok(), "%s", policy.ok() ? "" : policy.error().text.c_str());
  return *std::move(policy);
}

inline const Tenant* tenant_for(const Policy& policy, std::string_view account) {
  Submitter who;
  who.account = account;
  return policy.tenant_of(who);
}

inline std::string name_of(const Tenant* tenant) { return tenant ? tenant->name : "none"; }

/// What the policy of one tenant says for it; `keys` is the inside of its mapping.
inline Tenant only_tenant(const std::string& keys, const std::string& defaults = "") {
  return good("version: 1\nframeworks: {f: {versions: [\"1\", \"2\"]}, g: }\ndefaults: {" +
              defaults + "}\ntenants: {t: {" + keys + "}}\n")
      .tenants.at(0);
}

}  // namespace bellows
