// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace bellows::pool {

/// What members say of themselves, and when. Members may lie: a value that is no number, negative
/// or larger than kLargest is refused, and then the member's last one goes stale.
class SignalBook {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr double kLargest = 1e12;
  static constexpr std::size_t kMostMetrics = 256;  ///< of a member

  /// False: refused.
  bool put(const std::string& member, const std::string& metric, double value, Time now);
  /// Nothing: it never came, or more than `stale` before `now`.
  std::optional<double> get(const std::string& member, const std::string& metric, Time now,
                            std::chrono::seconds stale) const;

  /// The member asks for `members` more or fewer. A vote with the sequence number of its last one
  /// is that vote again. False: it is that, or its last one came less than `interval` ago.
  bool vote(const std::string& member, std::int32_t members, std::uint32_t sequence, Time now,
            std::chrono::seconds interval);
  /// The votes that nobody has taken yet, by member.
  std::map<std::string, std::int32_t> take_votes();

  /// Forgets what a member said.
  void forget(const std::string& member);

 private:
  struct Seen {
    double value = 0;
    Time at;
  };
  struct Vote {
    std::int32_t members = 0;
    std::uint32_t sequence = 0;
    Time at;
    bool taken = false;
  };

  std::map<std::string, std::map<std::string, Seen>> metrics_;
  std::map<std::string, Vote> votes_;
};

}  // namespace bellows::pool
