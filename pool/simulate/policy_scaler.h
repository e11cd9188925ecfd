// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pool/policy/decider.h"
#include "pool/simulate/autoscaler.h"

namespace bellows::pool {

/// A pool's policy as an autoscaler. Members say what it asks for, each its part: cpu, the share of
/// what it runs at once that is in progress; offered and load, the calls at once that the last
/// second needs; waiting, those that no member runs yet; a name that ends in .rate, calls a second;
/// and any other name, calls in progress or waiting. With `of: mean` each says the whole.
class PolicyScaler final : public Autoscaler {
 public:
  PolicyScaler(PoolPolicy policy, double call_s)
      : policy_(policy), call_s_(call_s), decider_(std::move(policy)) {}

  /// What can't be simulated of a policy; empty: nothing.
  static std::string complaint(const PoolPolicy& policy);

  PoolChoice decide(const PoolView& view) override;
  /// Why it last decided as it did, in a sentence.
  const std::string& why() const { return why_; }

 private:
  void put(const std::string& member, const PoolView& view, double ready, SignalBook::Time now);

  const PoolPolicy policy_;
  const double call_s_;
  Decider decider_;
  SignalBook signals_;
  MemberStarts started_;
  std::string why_;
};

}  // namespace bellows::pool
