// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/size_choice.h"

#include <fmt/core.h>

#include <algorithm>

namespace bellows::pool {
namespace {

/// The youngest has the least that would be lost with it.
std::vector<std::uint32_t> youngest_first(const MemberBook& book) {
  std::vector<std::uint32_t> jobs;
  for (const auto& [job, member] : book.members())
    if (member.phase == Phase::ready) jobs.push_back(job);
  std::sort(jobs.rbegin(), jobs.rend());
  return jobs;
}

}  // namespace

Wish SizeChoice::wish(const MemberBook& book, const PoolOrders& orders, Clock::time_point) {
  Wish wish{.wanted = settings_.min, .why = {}, .drain_first = youngest_first(book)};
  wish.why = fmt::format("{} is the least that the pool may have", settings_.min);
  if (orders.size > 0) {
    wish.wanted = std::clamp(orders.size, settings_.min, settings_.max);
    wish.why = fmt::format("`bellows pool scale` has set {}", orders.size);
  }
  if (orders.ends) {
    wish.wanted = 0;
    wish.why = "the pool is being deleted";
  }
  return wish;
}

}  // namespace bellows::pool
