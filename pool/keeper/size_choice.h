// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pool/keeper/member_book.h"
#include "pool/policy/decider.h"
#include "pool/wire/pool_settings.h"

namespace bellows::pool {

/// How many members a pool wants, why, and who may go first.
struct Wish {
  std::uint32_t wanted = 0;
  std::string why;
  std::vector<std::uint32_t> drain_first;  ///< jobs
  std::uint32_t most = UINT32_MAX;         ///< above which no member may be left
};

/// The policy of the pool in `dir`: its file, if it was made with one, within the settings.
Result<PoolPolicy> read_policy(const std::string& dir, const PoolSettings& settings);

/// Decides a pool's size: what a person has set, else the policy by what members say. A value.
class SizeChoice {
 public:
  explicit SizeChoice(PoolPolicy policy) : policy_(policy), decider_(std::move(policy)) {}
  /// Of a member of the book.
  void take(const MemberReport& report, Clock::time_point now);
  /// At least each second. Takes from the book how long members took to start.
  Wish wish(MemberBook& book, const PoolOrders& orders, Clock::time_point now);

 private:
  void forget_the_ended(const MemberBook& book);

  PoolPolicy policy_;
  Decider decider_;
  SignalBook signals_;
  MemberStarts starts_;
  std::vector<std::string> known_;  ///< of the signals
  std::optional<Clock::time_point> began_;
};

}  // namespace bellows::pool
