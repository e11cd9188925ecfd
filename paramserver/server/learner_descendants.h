// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "common/result.h"

namespace bellows::ps {

/// By what a bellows-ps knows the processes of its learners, also those that have left the process
/// groups: their environment names it, and no other job. Not known is a process that was started
/// with an environment of its own.
class LearnerRun {
 public:
  /// Of its environment.
  static constexpr std::string_view kVariable = "BELLOWS_PS_RUN";

  /// A new one, in the job of this process, if that is in one. io: there are no random numbers.
  static Result<LearnerRun> make();

  /// What no other has.
  const std::string& token() const { return token_; }
  /// Kills all of its processes. Takes no longer than a second.
  void kill_all() const;

 private:
  LearnerRun(std::string token, std::string job) : token_(std::move(token)), job_(std::move(job)) {}
  bool has(const std::string& environment) const;
  int kill_once() const;

  std::string token_;
  std::string job_;
};

}  // namespace bellows::ps
