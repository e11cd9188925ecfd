// SPDX-License-Identifier: Apache-2.0
#include "launcher/ranks/rank_ends.h"

#include <fmt/core.h>

#include "launcher/ranks/rank_names.h"

namespace bellows {

void RankEnds::note(const std::string& node, const event::Rank& rank) {
  using State = event::Rank::State;
  if (rank.state == State::finished) ++finished_;
  if (rank.state == State::lost) lost_[rank.rank] = node;
  // The command that started the rank has started it again.
  if (rank.state == State::joined) lost_.erase(rank.rank);
}

std::string RankEnds::deaths() const {
  if (finished_ > 0 || lost_.empty()) return "";
  RankNames names;
  for (const auto& [rank, node] : lost_) names.add(rank, node);
  return fmt::format("{} died, although the command that started {} ended with status 0",
                     names.to_string(), lost_.size() == 1 ? "it" : "them");
}

}  // namespace bellows
