// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/protocol.h"

namespace bellows {

/// Chooses the step that ranks go on from: the newest that verifies. Used by the launcher and by a
/// standalone agent. Does no I/O; one thread at a time.
///
/// A look at a step doesn't read its blocks: a restore does, and verifies them. When it meets a bad
/// one the step is noted here, and the next search goes past it.
class StepChoice {
 public:
  /// `whole`: read every block in the search.
  explicit StepChoice(bool whole = false) { search_.whole = whole; }

  /// The search, to be sent to the agents.
  Command find();
  /// What to offer the ranks after a `found`. With an error when the directory holds steps and none
  /// of them is good: beginning at the start is then for people to decide.
  Command offer(const Event& found) const;
  /// A rank could not read the step it was offered. What is not damaged is offered once more: a
  /// store may fail for a moment only.
  void note_bad(const Event& restore_error);
  /// An agent that knows what is known to be bad has found it good: it was saved again.
  void note_found(std::uint64_t step);
  /// A step that is saved again is as good as new.
  void note_committed(std::uint64_t step);

 private:
  Search search_;
  std::uint64_t searches_ = 0;
  std::map<std::uint64_t, std::uint64_t>
      failed_after_;  ///< step -> the search that offered it first
};

}  // namespace bellows
