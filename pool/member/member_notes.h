// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace bellows::pool {

/// A figure, and when it was said.
struct NotedMetric {
  double value = 0;
  std::chrono::steady_clock::time_point at;
};

/// What a member's program has said of itself. A value.
struct MemberNotes {
  static constexpr std::size_t kMostMetrics = 200;

  std::map<std::string, NotedMetric, std::less<>> metrics;
  std::int32_t vote = 0;
  std::uint32_t vote_sequence = 0;
  std::chrono::steady_clock::time_point voted_at;
  std::uint16_t port = 0;
  bool ready = false;
  bool has_news = false;  ///< that the keeper should know of at once

  /// One line as local_line.h has them, "watch" apart. False: it is none, and nothing is changed.
  bool take(std::string_view line, std::chrono::steady_clock::time_point now);
  /// A figure that the agent itself has found.
  bool note(std::string_view name, double value, std::chrono::steady_clock::time_point now);
};

}  // namespace bellows::pool
