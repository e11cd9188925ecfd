// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace bellows {

/// All ranks of a program start or none does: says which are missing when a start takes too long.
/// A rank has started when it has joined its node's agent (bellows_init). Does no I/O and reads no
/// clock.
class GangStart {
 public:
  using Clock = std::chrono::steady_clock;
  using Layout = std::map<std::string, std::vector<std::uint32_t>>;  ///< node -> its ranks

  /// `limit` 0: a start may take as long as it takes.
  explicit GangStart(std::chrono::seconds limit) : limit_(limit) {}

  void begin(const Layout& ranks, Clock::time_point now);
  void joined(std::uint32_t rank);
  /// Time in which nobody ran.
  void excuse(Clock::duration time) { begun_ += time; }

  struct Late {
    bool nobody = false;  ///< no rank has joined: the program may just not use libbellows
    std::string text;     ///< how many and which are missing, and where
  };
  /// Once the limit has passed and ranks are missing; once for each start.
  std::optional<Late> check(Clock::time_point now);
  /// What check() said could not be judged: it says so again after a while.
  void ask_again(Clock::time_point now);

 private:
  std::chrono::seconds limit_;
  std::map<std::uint32_t, std::string> missing_;  ///< rank -> node
  std::size_t world_ = 0;
  Clock::time_point begun_;
  bool told_ = true;
};

}  // namespace bellows
