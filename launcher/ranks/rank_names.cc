// SPDX-License-Identifier: Apache-2.0
#include "launcher/ranks/rank_names.h"

#include <fmt/core.h>

#include <iterator>
#include <vector>

namespace bellows {
namespace {

constexpr std::size_t kMostNodes = 4;

// 0,1,2,5 becomes 0-2,5.
std::string ranges_of(const std::set<std::uint32_t>& ranks) {
  std::string text;
  for (auto first = ranks.begin(); first != ranks.end();) {
    auto last = first;
    while (std::next(last) != ranks.end() && *std::next(last) == *last + 1) ++last;
    if (!text.empty()) text += ",";
    text += last == first ? std::to_string(*first) : fmt::format("{}-{}", *first, *last);
    first = std::next(last);
  }
  return text;
}

}  // namespace

std::size_t RankNames::size() const {
  std::size_t count = 0;
  for (const auto& [node, ranks] : ranks_) count += ranks.size();
  return count;
}

std::string RankNames::to_string() const {
  std::string text;
  std::size_t named = 0;
  for (const auto& [node, ranks] : ranks_) {
    if (named == kMostNodes) {
      text += fmt::format(" and ranks on {} more nodes", ranks_.size() - named);
      break;
    }
    if (named > 0) text += ranks_.size() == named + 1 ? " and " : ", ";
    text +=
        fmt::format("{} {} on {}", ranks.size() == 1 ? "rank" : "ranks", ranges_of(ranks), node);
    ++named;
  }
  return text;
}

}  // namespace bellows
