// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/learner_lines.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace bellows::ps {

LearnerLines::LearnerLines(std::uint32_t learners) : learners_(learners) {}

std::string LearnerLines::line(Kind kind, const std::string& text, Clock::time_point now) {
  Count& count = counts_[static_cast<std::size_t>(kind)];
  const std::uint32_t most = kind == Kind::refusal ? kMost : std::max(kMost, learners_);
  if (now - count.since > std::chrono::minutes(1)) {
    count.since = now;
    count.said = 0;
  }
  if (count.said == most) {
    ++count.unsaid;
    return "";
  }
  ++count.said;
  const std::uint64_t before = std::exchange(count.unsaid, 0);
  std::string line = text;
  if (before > 0) line += fmt::format("; before that, {} more that it did not say", before);
  if (count.said == most) line += "; it says no more of this kind for a minute";
  return line;
}

}  // namespace bellows::ps
