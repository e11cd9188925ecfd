// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/protocol/step_choice.h"

#include <fmt/core.h>

#include <algorithm>

#include "checkpoint/system/retry.h"

namespace bellows {

Command StepChoice::find() const {
  Command command;
  command.kind = Command::Kind::find;
  command.search = search_;
  return command;
}

Command StepChoice::offer(const Event& found) const {
  Command command;
  command.kind = Command::Kind::restore;
  command.step = found.step;
  if (found.step || found.skipped.empty()) return command;
  const SkippedStep& newest = found.skipped.front();
  command.error_kind = ErrorKind::corrupt;
  command.error = fmt::format(
      "no checkpoint can be used, all {} are damaged; step {}: {}; name another directory, or "
      "remove the damaged steps to start from scratch",
      found.skipped.size(), newest.step, newest.error);
  return command;
}

bool StepChoice::note_bad(const Event& restore_error) {
  if (may_pass(Error{restore_error.error_kind, ""})) return false;
  const std::uint64_t step = restore_error.step.value_or(0);
  const auto known = [step](const SkippedStep& bad) { return bad.step == step; };
  // Several ranks may tell of one failure.
  if (std::any_of(search_.bad.begin(), search_.bad.end(), known)) return true;
  search_.bad.push_back({step, restore_error.error});
  return true;
}

void StepChoice::note_good(std::uint64_t step) {
  std::erase_if(search_.bad, [step](const SkippedStep& bad) { return bad.step == step; });
}

}  // namespace bellows
