// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/protocol/protocol.h"

namespace bellows {

/// Chooses the step from which ranks continue: the newest that verifies. Used by the launcher and
/// by a standalone agent. Does no I/O; one thread at a time.
///
/// A look at a step doesn't read its blocks: a restore does, and verifies them. When it meets a bad
/// one the step is noted here, and the next search goes past it.
class StepChoice {
 public:
  /// `whole`: read every block in the search.
  explicit StepChoice(bool whole = false) { search_.whole = whole; }

  /// The search, to be sent to the agents.
  command::Find find() const { return {search_}; }
  /// What to offer the ranks after a `found`. With an error when the directory holds steps and none
  /// of them is good: beginning at the start is then for people to decide.
  command::Restore offer(const event::Found& found) const;
  /// A rank could not restore the step it was offered. False: the step is not known to be bad, as
  /// its files could not be read; it is offered again.
  bool note_bad(const event::RestoreError& bad);
  /// It was committed, or found by an agent that knows what is known to be bad: a step that is
  /// saved again is as good as new.
  void note_good(std::uint64_t step);

 private:
  Search search_;
};

}  // namespace bellows
