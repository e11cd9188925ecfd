// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "pool/policy/policy_script.h"

namespace bellows::pool {

/// As many members as keep a metric at `per_member` for each.
struct TargetRule {
  /// sum: each member has its own part, such as its calls; mean: each sees the whole, such as a
  /// queue that they share.
  enum class Of { sum, mean };

  std::string metric;
  double per_member = 1;  ///< above 0
  Of of = Of::sum;
};

/// A mean utilisation between `down` and `up`, of 1.
struct ThresholdRule {
  std::string metric;  ///< cpu, memory or gpu
  double up = 0.8;
  double down = 0.5;
};

/// What decides a pool's size. A value.
struct PoolPolicy {
  enum class Votes { sum, largest };

  std::string name;
  std::uint32_t min = 1;
  std::uint32_t max = 1;
  std::chrono::seconds burst_interval{60};  ///< between two changes by thresholds, and two votes
  std::chrono::seconds stale{15};           ///< a metric that is older is missing
  std::chrono::seconds panic_window{
      6};  ///< without shrinking, from when twice the members are needed
  std::chrono::seconds stabilisation{
      0};  ///< for which fewer must be enough before it shrinks; the median start time at least
  std::uint32_t step_up = 0;     ///< members more in one decision at most; 0: any number
  std::uint32_t step_down = 0;   ///< fewer
  std::uint32_t vote_limit = 1;  ///< what one member's word counts for, in members
  Votes votes = Votes::sum;
  std::vector<TargetRule> targets;
  std::vector<ThresholdRule> thresholds;
  std::shared_ptr<PolicyScript> script{};  ///< in place of both, and of votes; null: there is none
};

/// Whether a pool that has no member may ever have one again: nobody is left who says how much is
/// needed, but a person or a script.
inline bool may_be_empty(const PoolPolicy& policy) {
  return policy.targets.empty() && policy.thresholds.empty();
}

inline constexpr const char* kNobodySays =
    "with targets or thresholds min must be 1 at least: in a pool without members nobody says "
    "how much is needed, and it would stay so";

inline constexpr std::size_t kMostPolicyBytes = 64 * 1024;

/// Reads a policy: a script where the file's name ends in .lua, else YAML. invalid:
/// "FILE:LINE:COLUMN: what is wrong, and what it must be".
Result<PoolPolicy> read_pool_policy(std::string_view text, const std::string& file);

}  // namespace bellows::pool
