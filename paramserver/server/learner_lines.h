// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace bellows::ps {

/// Which lines about learners are said: one may come, go and be refused again and again. A value.
class LearnerLines {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Kind { join, end, put_out, refusal };
  static constexpr std::uint32_t kMost = 10;  ///< of a kind in a minute

  /// Where there are more learners than kMost, each may have a line that it joins, and so on.
  explicit LearnerLines(std::uint32_t learners);
  /// The line for a text; empty: there is none.
  std::string line(Kind kind, const std::string& text, Clock::time_point now);

 private:
  struct Count {
    Clock::time_point since{};
    std::uint32_t said = 0;
    std::uint64_t unsaid = 0;
  };
  std::uint32_t learners_;
  std::array<Count, static_cast<std::size_t>(Kind::refusal) + 1> counts_{};
};

}  // namespace bellows::ps
