// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/base/side_question.h"

namespace bellows {

/// Whether slurmctld answers, found out without waiting for it and no more than once a second. A
/// query right after it has answered delays nothing.
class SlurmReach {
 public:
  using Clock = std::chrono::steady_clock;
  /// Asks slurmctld something; runs in a process of its own. not_found is an answer too.
  using Look = std::function<Status()>;

  void add_poll(std::vector<pollfd>& fds) const;
  /// True: it has just answered, once for each question. False: not known yet, or it does not.
  bool answers(const Look& look, Clock::time_point now);
  /// Why it does not; once for each trouble.
  std::optional<std::string> trouble();

 private:
  SideQuestion question_;
  Clock::time_point next_;
  std::string trouble_;
  bool told_ = true;
};

}  // namespace bellows
