// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/protocol/step_choice.h"

#include <fmt/core.h>

#include <algorithm>

#include "checkpoint/system/retry.h"

namespace bellows {

command::Restore StepChoice::offer(const event::Found& found) const {
  command::Restore restore{.step = found.step};
  if (found.step || found.skipped.empty()) return restore;
  const SkippedStep& newest = found.skipped.front();
  restore.error = Error{
      ErrorKind::corrupt,
      fmt::format(
          "no checkpoint can be used, all {} are damaged; step {}: {}; name another directory, or "
          "remove the damaged steps to start from scratch",
          found.skipped.size(), newest.step, newest.error)};
  return restore;
}

bool StepChoice::note_bad(const event::RestoreError& bad) {
  if (may_pass(bad.error)) return false;
  const auto known = [&bad](const SkippedStep& other) { return other.step == bad.step; };
  // Several ranks may tell of one failure.
  if (std::any_of(search_.bad.begin(), search_.bad.end(), known)) return true;
  search_.bad.push_back({bad.step, bad.error.text});
  return true;
}

void StepChoice::note_good(std::uint64_t step) {
  std::erase_if(search_.bad, [step](const SkippedStep& bad) { return bad.step == step; });
}

}  // namespace bellows
