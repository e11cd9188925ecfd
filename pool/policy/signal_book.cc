// SPDX-License-Identifier: Apache-2.0
#include "pool/policy/signal_book.h"

#include <utility>

namespace bellows::pool {

bool SignalBook::put(const std::string& member, const std::string& metric, double value, Time now) {
  // Written so that NaN fails it.
  if (!(value >= 0 && value <= kLargest)) return false;
  auto& seen = metrics_[member];
  if (seen.size() >= kMostMetrics && !seen.contains(metric)) return false;
  seen[metric] = {value, now};
  return true;
}

std::optional<double> SignalBook::get(const std::string& member, const std::string& metric,
                                      Time now, std::chrono::seconds stale) const {
  const auto seen = metrics_.find(member);
  if (seen == metrics_.end()) return std::nullopt;
  const auto found = seen->second.find(metric);
  if (found == seen->second.end()) return std::nullopt;
  if (now - found->second.at > stale) return std::nullopt;
  return found->second.value;
}

bool SignalBook::vote(const std::string& member, std::int32_t members, std::uint32_t sequence,
                      Time now, std::chrono::seconds interval) {
  const auto last = votes_.find(member);
  if (last != votes_.end()) {
    const bool is_new = std::exchange(last->second.sequence, sequence) != sequence;
    // It may be said again, and is refused for good.
    if (!is_new || now - last->second.at < interval) return false;
  }
  votes_[member] = {members, sequence, now, false};
  return true;
}

std::map<std::string, std::int32_t> SignalBook::take_votes() {
  std::map<std::string, std::int32_t> votes;
  for (auto& [member, vote] : votes_)
    if (!std::exchange(vote.taken, true)) votes[member] = vote.members;
  return votes;
}

void SignalBook::forget(const std::string& member) {
  metrics_.erase(member);
  votes_.erase(member);
}

}  // namespace bellows::pool
