// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "checkpoint/protocol/protocol.h"

namespace bellows {

/// Saves that have begun and are neither committed nor failed, and what the agents have yet to
/// write once the ranks have ended: what those gave them may still become checkpoints.
class OpenSaves {
 public:
  using Clock = std::chrono::steady_clock;

  void begin_attempt() { steps_.clear(); }
  /// True: it is the step's first part.
  bool begin(std::uint64_t step) { return steps_.insert(step).second; }
  void end(std::uint64_t step) { steps_.erase(step); }
  bool any() const { return !steps_.empty(); }
  /// An agent has written something.
  void note_news(Clock::time_point now) { last_news_ = now; }

  /// The ranks have ended: the id of the question to every agent what it has yet to write.
  std::uint64_t begin_drain(Clock::time_point now) {
    unwritten_.clear();
    last_news_ = now;
    return ++last_query_;
  }
  /// `node`: whose agent says it.
  void note_unwritten(const std::string& node, const event::Progress& progress,
                      Clock::time_point now) {
    // What an agent says by itself may be older than the ranks' end.
    if (progress.id == last_query_ || unwritten_.contains(node))
      unwritten_[node] = progress.unwritten;
    // There is no other sign of a commit that a slow file system holds up.
    if (progress.unwritten > 0 || progress.busy) last_news_ = now;
  }
  bool all_answered(std::size_t nodes) const { return unwritten_.size() >= nodes; }
  /// Nothing more will come of them, or there has been no news for too long.
  bool drained(std::size_t nodes, Clock::time_point now) const {
    const bool writing = std::any_of(unwritten_.begin(), unwritten_.end(),
                                     [](const auto& node) { return node.second > 0; });
    const bool over = all_answered(nodes) && !writing && steps_.empty();
    return over || now - last_news_ > kNewsWithin;
  }

  /// The same once an agent has died: it answers nothing, and what waits for its part does so in
  /// vain; of the others something may be on its way.
  bool drained_without_agent(Clock::time_point now) const {
    return steps_.empty() || now - last_news_ > kNewsOfOthersWithin;
  }

 private:
  static constexpr auto kNewsWithin = std::chrono::seconds(3);
  /// Agents report each second, or a little later.
  static constexpr auto kNewsOfOthersWithin = std::chrono::milliseconds(2500);
  std::set<std::uint64_t> steps_;
  std::map<std::string, std::uint32_t> unwritten_;  ///< node -> parts of steps it has yet to write
  std::uint64_t last_query_ = 0;
  Clock::time_point last_news_;
};

}  // namespace bellows
