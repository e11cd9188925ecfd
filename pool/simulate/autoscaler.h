// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace bellows::pool {

/// What an autoscaler may know at a moment of simulated time.
struct PoolView {
  struct Member {
    std::uint32_t id = 0;
    bool ready = false;
    double since = 0;  ///< s, of its submission
  };

  double at = 0;                   ///< s
  int second = 0;                  ///< the same, whole
  std::vector<Member> members;     ///< that don't drain
  double calls = 0;                ///< in progress or waiting, in all, over the last second
  double offered = 0;              ///< calls at once that what came in the last second needs
  double waiting = 0;              ///< calls that no member runs yet
  double calls_each = 0;           ///< in progress in one ready member, as a share of what it can
  std::vector<double> started_in;  ///< s, of those that have just become ready

  std::uint32_t ready() const {
    return static_cast<std::uint32_t>(std::count_if(
        members.begin(), members.end(), [](const Member& member) { return member.ready; }));
  }
};

/// Whom to end besides, where an autoscaler chooses; else the newest that isn't ready goes first.
struct PoolChoice {
  std::uint32_t wanted = 0;
  bool chooses = false;
  std::vector<std::uint32_t> drain;
};

/// A rule for the size of a pool, asked each tick. It keeps what it has seen.
class Autoscaler {
 public:
  virtual ~Autoscaler() = default;
  virtual PoolChoice decide(const PoolView& view) = 0;
};

}  // namespace bellows::pool
