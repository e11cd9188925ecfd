// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/policy_source.h"

#include "common/fd.h"

namespace bellows {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

Result<Policy> with_controller(Result<Policy> policy, const std::string& path) {
  if (!policy || policy->controller) return policy;
  return Error{ErrorKind::invalid,
               path + " names no controller; give it the key \"controller\", see bellows.yaml(5)"};
}

}  // namespace

const std::optional<Policy>& PolicySource::current() {
  auto text = read_file(path_, kMostBytes);
  if (text && *text == text_) return policy_;
  if (text) text_ = *text;
  auto policy =
      text ? with_controller(load_policy(*text, path_), path_) : Result<Policy>(text.error());
  const std::string trouble = policy ? "" : policy.error().text;
  if (policy) policy_ = *std::move(policy);
  told_ = trouble == trouble_ && told_;
  trouble_ = trouble;
  return policy_;
}

std::optional<std::string> PolicySource::trouble() {
  if (told_) return std::nullopt;
  told_ = true;
  if (trouble_.empty()) return std::nullopt;
  return trouble_;
}

}  // namespace bellows
