// SPDX-License-Identifier: Apache-2.0
#include "pool/member/member_notes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "common/text.h"
#include "pool/include/bellows_pool.h"

namespace bellows::pool {
namespace {

/// The policy limits a vote further.
constexpr std::int32_t kLargestVote = 1'000'000;

template <typename Number>
std::optional<Number> parse(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_metric_name(std::string_view name) {
  return !name.empty() && name.size() <= BELLOWS_POOL_NAME_MAX &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_alphanumeric(c) || c == '_' || c == ':' || c == '.'; });
}

}  // namespace

bool MemberNotes::note(std::string_view name, double value,
                       std::chrono::steady_clock::time_point now) {
  if (!is_metric_name(name) || !std::isfinite(value)) return false;
  const auto place = metrics.find(name);
  if (place == metrics.end() && metrics.size() >= kMostMetrics) return false;
  metrics[std::string(name)] = {value, now};
  return true;
}

bool MemberNotes::take(std::string_view line, std::chrono::steady_clock::time_point now) {
  const std::vector<std::string_view> words = split(line, ' ');
  if (words.size() == 1 && words[0] == "ready") {
    has_news |= !ready;
    ready = true;
    return true;
  }
  if (words.size() == 3 && words[0] == "metric") {
    const auto value = parse<double>(words[2]);
    has_news |= value.has_value();
    return value && note(words[1], *value, now);
  }
  if (words.size() != 2) return false;
  if (words[0] == "vote") {
    const auto change = parse<std::int32_t>(words[1]);
    if (!change || *change < -kLargestVote || *change > kLargestVote) return false;
    vote = *change;
    ++vote_sequence;
    voted_at = now;
    return has_news = true;
  }
  const auto said = parse<std::uint16_t>(words[1]);
  if (words[0] != "listen" || !said || *said == 0) return false;
  has_news |= port != *said;
  port = *said;
  return true;
}

}  // namespace bellows::pool
