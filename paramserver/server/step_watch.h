// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "paramserver/memory/layout.h"

namespace bellows::ps {

/// Notices, for people, when learners in step with one another wait for one of them.
class StepWatch {
 public:
  using Clock = std::chrono::steady_clock;
  struct Stall {
    std::uint32_t learner;
    std::chrono::seconds lasts;
  };

  /// `missing`: for whom a shard waits, at which version. Each wait is told of once, and only if it
  /// is twice as long as the last of which was told.
  std::optional<Stall> look(Slowest missing, Clock::time_point now) {
    if (missing.word() != missing_.word()) {
      missing_ = missing;
      since_ = now;
    }
    const auto lasts = std::chrono::duration_cast<std::chrono::seconds>(now - since_);
    if (missing.learner == Slowest::kNobody || lasts < least_) return std::nullopt;
    least_ = 2 * lasts;
    return Stall{missing.learner, lasts};
  }

 private:
  Slowest missing_;
  Clock::time_point since_;
  std::chrono::seconds least_{5};
};

}  // namespace bellows::ps
