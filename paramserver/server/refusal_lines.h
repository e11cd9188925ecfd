// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace bellows::ps {

/// Which refusals of learners are said: whoever is refused may try again and again. A value.
class RefusalLines {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint32_t kMost = 10;  ///< in a minute

  /// The line for one; empty: there is none.
  std::string line(const std::string& why, Clock::time_point now);

 private:
  Clock::time_point since_{};
  std::uint32_t said_ = 0;
  std::uint64_t unsaid_ = 0;
};

}  // namespace bellows::ps
