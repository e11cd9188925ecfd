// SPDX-License-Identifier: Apache-2.0
/// bellows.yaml as an attacker would write it: every text gives a policy or an error with a place.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "jobsubmit/policy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto policy = bellows::load_policy(text, "f");
  if (!policy) {
    if (!policy.error().text.starts_with("f:")) std::abort();
    return 0;
  }
  for (const bellows::Tenant& tenant : policy->tenants) {
    if (!tenant.gpus.sizes().contains(tenant.gpus.start)) std::abort();
    for (const std::string& account : tenant.accounts)
      if (policy->tenant_of(account) != &tenant) std::abort();
  }
  return 0;
}
