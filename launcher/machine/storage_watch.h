// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "checkpoint/protocol/protocol.h"

namespace bellows {

/// Finds out, from what the agents say, when training waits for the file system of its checkpoints:
/// an agent is at work for its ranks, and no rank has taken a step, for much longer than saves
/// take. This only informs people. Such ranks do not hang, and starting them again would not help
/// them. Does no I/O and reads no clock.
class StorageWatch {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLonger = 5;  ///< times what a save usually takes
  static constexpr double kAtLeast = 5;
  static constexpr double kUnknown = 60;  ///< before the first save

  /// New ranks start.
  void begin(Clock::time_point now);
  /// `node`: whose agent says it.
  void note(const std::string& node, const event::Progress& progress, Clock::time_point now);
  /// Nobody ran for this long.
  void excuse(Clock::duration gap);
  /// What to tell, once when a wait has become long and once when it is over. `usual`: seconds.
  std::optional<std::string> check(Clock::time_point now, std::optional<double> usual);

 private:
  std::map<std::uint32_t, std::optional<std::uint64_t>> steps_;  ///< rank -> step
  std::map<std::string, Clock::time_point> busy_;                ///< node -> since when
  Clock::time_point advanced_;
  std::optional<Clock::time_point> told_;  ///< the begin of the wait that was told
};

}  // namespace bellows
