// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/side_question.h"

namespace bellows {

/// Looks every few seconds who owns a checkpoint directory, and never waits for its file system,
/// which may hang: a run that slurmctld does not reach learns about a later run only there.
class OwnerWatch {
 public:
  using Clock = std::chrono::steady_clock;
  /// Reads the name of the attempt; runs in a process of its own.
  using Look = std::function<std::string()>;
  static constexpr std::chrono::seconds kEvery{3};

  /// New ranks start: the next look is at once.
  void begin() { next_ = {}; }
  void add_poll(std::vector<pollfd>& fds) const;
  /// The attempt that owned the directory at the last look, once.
  std::optional<std::string> owner(const Look& look, Clock::time_point now);

 private:
  SideQuestion question_;
  Clock::time_point next_;
};

}  // namespace bellows
