// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "paramserver/server/learner_board.h"
#include "paramserver/server/learner_descendants.h"

namespace bellows::ps {

/// A process that kills all learners and what they have started, and removes the socket and its
/// directory, when the process that made it is killed: a learner's own children would not end with
/// that.
class LearnerGuard {
 public:
  /// `directory`: empty: the socket's is not removed.
  static Result<LearnerGuard> start(const LearnerBoard& board, const LearnerRun& run,
                                    const std::string& socket, const std::string& directory);
  LearnerGuard(LearnerGuard&& other) noexcept;
  LearnerGuard& operator=(LearnerGuard&&) = delete;
  /// Ends it, and leaves the rest as it is.
  ~LearnerGuard();

 private:
  explicit LearnerGuard(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

}  // namespace bellows::ps
