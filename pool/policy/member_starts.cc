// SPDX-License-Identifier: Apache-2.0
#include "pool/policy/member_starts.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace bellows::pool {

void MemberStarts::add(Seconds took) {
  if (!(took.count() >= 0)) return;
  took_.push_back(took);
  if (took_.size() > kKept) took_.pop_front();
}

std::optional<MemberStarts::Seconds> MemberStarts::part(double part) const {
  if (took_.empty()) return std::nullopt;
  std::vector<Seconds> ordered(took_.begin(), took_.end());
  std::sort(ordered.begin(), ordered.end());
  const double rank = std::ceil(part * static_cast<double>(ordered.size()));
  return ordered[static_cast<std::size_t>(rank) - 1];
}

}  // namespace bellows::pool
