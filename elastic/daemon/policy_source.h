// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "jobsubmit/policy/policy.h"

namespace bellows {

/// bellows.yaml as bellowsd reads it: again whenever it has changed. Used by one thread.
class PolicySource {
 public:
  explicit PolicySource(std::string path) : path_(std::move(path)) {}

  /// The last good policy with a controller in it; nothing: there was none yet.
  const std::optional<Policy>& current();
  /// Why the newest file is not in force, once for each trouble.
  std::optional<std::string> trouble();

 private:
  std::string path_;
  std::string text_;  ///< that was read last
  std::optional<Policy> policy_;
  std::string trouble_;
  bool told_ = true;
};

}  // namespace bellows
