// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/refusal_lines.h"

#include <fmt/core.h>

#include <utility>

namespace bellows::ps {

std::string RefusalLines::line(const std::string& why, Clock::time_point now) {
  if (now - since_ > std::chrono::minutes(1)) {
    since_ = now;
    said_ = 0;
  }
  if (said_ == kMost) {
    ++unsaid_;
    return "";
  }
  ++said_;
  const std::uint64_t before = std::exchange(unsaid_, 0);
  std::string text = "refuses a learner: " + why;
  if (before > 0) text += fmt::format("; before that, {} more that it did not say", before);
  if (said_ == kMost) text += "; it says no more of them for a minute";
  return text;
}

}  // namespace bellows::ps
