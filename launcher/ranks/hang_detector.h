// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "checkpoint/protocol/protocol.h"

namespace bellows {

/// Finds out, from what the agents say about their ranks, when training no longer advances. Does no
/// I/O and reads no clock: whoever owns it brings the time, which never goes back.
///
/// Training advances when the published step of any rank changes. The limit is kLongest times the
/// longest time between two changes within kRemembered, and no less than the floor: the longest and
/// not a mean, since a job that evaluates its model once an hour is slow once an hour and not hung.
/// While an agent works for its ranks (saves, restores, commits) no time counts, and none in which
/// nobody ran. Before the third change, and once a rank has finished training, the limit is at
/// least kUnknown floors: programs load and compile before, and export after. Once all ranks have
/// left, it never calls a hang: how long the program then takes is not known. Each hang called at a
/// step that was not passed since doubles the limit, so that a wrong verdict is not repeated
/// forever. After the death of a rank the floor is no more than kAfterDeath.
class HangDetector {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLongest = 5;
  static constexpr int kUnknown = 6;
  static constexpr std::chrono::seconds kAfterDeath{30};
  static constexpr std::chrono::hours kRemembered{4};

  /// `floor` 0: it never calls a hang.
  explicit HangDetector(std::chrono::seconds floor) : floor_(floor) {}

  /// New ranks start; what was learned of their steps stays.
  void begin(Clock::time_point now);
  /// `node`: whose agent says it.
  void note(const std::string& node, const event::Progress& progress, Clock::time_point now);
  /// The ranks are waiting for work that is being done for them, or no process has run until now.
  void excuse(Clock::time_point now);
  /// A rank has died and the others continue: unless they take further steps, they wait for it.
  void note_death() { death_ = true; }
  /// What hangs, for a person, once for each hang; nothing while training advances.
  std::optional<std::string> check(Clock::time_point now);
  /// An agent has said nothing for longer than a living one does.
  bool silent(Clock::time_point now) const { return !silent_nodes(now).empty(); }
  /// Training has advanced since the last call of a hang.
  bool recovered() const { return recovered_; }
  std::chrono::milliseconds limit() const;

 private:
  struct Gap {
    Clock::time_point end;
    Clock::duration length;
  };
  struct Rank {
    std::string node;
    std::optional<std::uint64_t> step;
    bool operator==(const Rank&) const = default;
  };
  void advanced(Clock::time_point now);
  std::string stuck_ranks() const;
  std::string silent_nodes(Clock::time_point now) const;

  std::chrono::milliseconds floor_;
  std::map<std::uint32_t, Rank> ranks_;
  std::map<std::string, std::uint32_t> finished_;   ///< node -> ranks whose training is complete
  Clock::time_point since_;                         ///< of the last change or excuse
  std::map<std::string, Clock::time_point> heard_;  ///< node -> its agent's last word
  bool excused_ = true;  ///< what ends now is not the time between two steps
  bool recovered_ = false;
  bool death_ = false;                      ///< since begin()
  std::uint32_t changes_ = 0;               ///< of steps since begin()
  std::deque<Gap> gaps_;                    ///< each longer than those after it
  std::optional<std::uint64_t> called_at_;  ///< newest step at the last call
  std::uint32_t calls_ = 0;                 ///< without having passed that step
};

}  // namespace bellows
