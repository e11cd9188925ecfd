// SPDX-License-Identifier: Apache-2.0
#include "launcher/ranks/gang_start.h"

#include <fmt/core.h>

#include "launcher/ranks/rank_names.h"

namespace bellows {
namespace {

constexpr auto kAskAgainAfter = std::chrono::seconds(10);

}  // namespace

void GangStart::begin(const Layout& ranks, Clock::time_point now) {
  missing_.clear();
  for (const auto& [node, here] : ranks)
    for (std::uint32_t rank : here) missing_[rank] = node;
  world_ = missing_.size();
  begun_ = now;
  told_ = false;
}

void GangStart::joined(std::uint32_t rank) { missing_.erase(rank); }

void GangStart::ask_again(Clock::time_point now) {
  begun_ = now + kAskAgainAfter - limit_;
  told_ = false;
}

std::optional<GangStart::Late> GangStart::check(Clock::time_point now) {
  if (told_ || limit_.count() == 0 || missing_.empty() || now - begun_ < limit_)
    return std::nullopt;
  told_ = true;
  RankNames names;
  for (const auto& [rank, node] : missing_) names.add(rank, node);
  return Late{missing_.size() == world_,
              fmt::format("{} of {} ranks did not start within {} s: {}", missing_.size(), world_,
                          limit_.count(), names.to_string())};
}

}  // namespace bellows
