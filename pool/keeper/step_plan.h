// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pool/keeper/member_book.h"

namespace bellows::pool {

/// What is to be asked of Slurm now, so that a pool has the size that is wanted.
struct StepPlan {
  std::uint32_t submit = 0;
  std::vector<std::uint32_t> drain;   ///< jobs, to be told
  std::vector<std::uint32_t> cancel;  ///< jobs whose time to drain is over, or that never began
};

/// `drain_first`: members in the order in which they may go; those that are not ready are left out,
/// since whoever cancels a member before it has worked has paid for it and gets nothing. Above
/// `max` also these go, the youngest first, and above `wanted` those that nobody has asked for.
StepPlan plan_steps(const MemberBook& book, std::uint32_t wanted, std::uint32_t max,
                    const std::vector<std::uint32_t>& drain_first, Clock::time_point now);

}  // namespace bellows::pool
