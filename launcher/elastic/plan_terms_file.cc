// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/plan_terms_file.h"

#include <optional>

#include "common/fd.h"
#include "elastic/daemon/plan_terms.h"
#include "jobsubmit/policy/policy.h"

namespace bellows {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

}  // namespace

Result<PlanTerms> read_plan_terms(const std::string& path) {
  const auto text = read_file(path, kMostBytes);
  if (!text) return text.error();
  const auto policy = load_policy(*text, path);
  if (!policy) return policy.error();
  if (!policy->controller)
    return Error{
        ErrorKind::invalid,
        path + " names no controller; give it the key \"controller\", see bellows.yaml(5)"};
  return plan_terms_of(*policy, std::nullopt);
}

}  // namespace bellows
