// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pool/keeper/member_book.h"
#include "pool/wire/pool_settings.h"

namespace bellows::pool {

/// How many members a pool wants, why, and who may go first.
struct Wish {
  std::uint32_t wanted = 0;
  std::string why;
  std::vector<std::uint32_t> drain_first;  ///< jobs
};

/// Decides a pool's size: what a person has set, else the policy. A value.
class SizeChoice {
 public:
  explicit SizeChoice(const PoolSettings& settings) : settings_(settings) {}
  Wish wish(const MemberBook& book, const PoolOrders& orders, Clock::time_point now);

 private:
  PoolSettings settings_;
};

}  // namespace bellows::pool
