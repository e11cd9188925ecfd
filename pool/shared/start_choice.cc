// SPDX-License-Identifier: Apache-2.0
#include "pool/shared/start_choice.h"

namespace bellows::pool {

SeatStart choose_start(const SeatFacts& facts) {
  if (facts.has_data && !facts.refuses_it) return SeatStart::go_on;
  if (!facts.born) return facts.has_data ? SeatStart::go_on : SeatStart::found;
  if (facts.quorum) return SeatStart::rejoin;
  // Damaged data is still the best there is, and those of another may be whole.
  if (facts.has_data) return SeatStart::go_on;
  // What others have while they restore is that copy, too.
  const bool all_gone = facts.restoring || !facts.others_data;
  return all_gone && facts.snapshot ? SeatStart::restore : SeatStart::wait;
}

}  // namespace bellows::pool
