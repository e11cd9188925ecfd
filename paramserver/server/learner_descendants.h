// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"

namespace bellows::ps {

/// Of the environment of each learner.
inline constexpr std::string_view kLearnerVariable = "BELLOWS_PS_LEARNER";

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
  /// The number of the learner that a process is, or was started by. Nothing: of none of these, or
  /// it has ended.
  std::optional<std::uint32_t> learner_of(pid_t process) const;
  using Limit = std::chrono::milliseconds;
  /// Enough for a node with very many processes, where nobody waits for this one.
  static constexpr Limit kAtEnd{5000};
  static constexpr Limit kBetween{1000};
  /// Kills all of its processes, until there are none or the time is over. It is late only by the
  /// time for which the kernel has it wait for one process's environment.
  void kill_all(Limit within) const;
  /// The same of some learners.
  void kill_all_of(const std::vector<std::uint32_t>& learners, Limit within) const;

 private:
  LearnerRun(std::string token, std::string job) : token_(std::move(token)), job_(std::move(job)) {}
  using Variables = std::vector<std::string_view>;
  using Wanted = std::function<bool(const Variables&)>;
  bool has(const Variables& environment) const;
  using Clock = std::chrono::steady_clock;
  int kill_once(const Wanted& wanted, Clock::time_point until) const;
  void kill_until_none_is_left(const Wanted& wanted, Limit within) const;

  std::string token_;
  std::string job_;
};

}  // namespace bellows::ps
