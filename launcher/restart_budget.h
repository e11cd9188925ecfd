// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace bellows {

/// How often a job may fail without getting anywhere. A newly committed step refills it, so that a
/// long job survives many faults while a program that crashes at once does not loop for ever.
class RestartBudget {
 public:
  explicit RestartBudget(std::uint32_t most) : most_(most) {}

  /// Counts a failure when `committed` was the newest committed step. True: start again.
  bool spend(std::optional<std::uint64_t> committed) {
    if (failures_ > 0 && committed && (!last_ || *committed > *last_)) failures_ = 0;
    last_ = committed;
    return ++failures_ <= most_;
  }
  /// Failures in a row without progress.
  std::uint32_t failures() const { return failures_; }
  std::uint32_t most() const { return most_; }

 private:
  std::uint32_t most_;
  std::uint32_t failures_ = 0;
  std::optional<std::uint64_t> last_;
};

}  // namespace bellows
