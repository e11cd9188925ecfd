// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <optional>

#include "paramserver/server/learner_board.h"
#include "paramserver/server/learner_descendants.h"

namespace bellows::ps {

/// What a server has to do with the learners that bellows-ps has started.
class StartedLearners {
 public:
  StartedLearners(const LearnerBoard& board, const LearnerRun& run) : board_(board), run_(run) {}

  /// The number of the learner that a process is, or was started by: by its process group, or where
  /// it has left that, as what timeout(1) starts, by its environment. Nothing: it is of none.
  std::optional<std::uint32_t> learner_of(pid_t process) const {
    if (process <= 0) return std::nullopt;
    const auto learner = board_.learner_of(getpgid(process));
    return learner ? learner : run_.learner_of(process);
  }
  bool is_done(std::uint32_t learner) const { return board_[learner].done != 0; }
  /// A gradient of its was applied.
  void note_trained(std::uint32_t learner) const { board_[learner].trained = 1; }

 private:
  const LearnerBoard& board_;
  const LearnerRun& run_;
};

}  // namespace bellows::ps
