// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "checkpoint/wire/wire.h"
#include "common/result.h"

namespace bellows {

/// The step at which the ranks of an attempt wait for a decision, and the one where they stop. Only
/// decides: whoever asks tells the ranks.
class Gate {
 public:
  using Clock = std::chrono::steady_clock;

  /// A gate that nobody decided within `limit` opens again.
  explicit Gate(std::chrono::milliseconds limit) : limit_(limit) {}

  /// None: release.
  void set(std::optional<std::uint64_t> step, Clock::time_point now);
  /// The newest step that a rank had come to once all ranks knew of the gate.
  void note_newest(std::optional<std::uint64_t> step) { newest_ = step; }
  /// invalid: ranks may have passed the step.
  Status stop_at(std::optional<std::uint64_t> step);
  /// Opens a gate that waited too long for a decision: why, and `step` gets where it stood.
  std::optional<Error> expire(Clock::time_point now, std::uint64_t* step);

  /// wire::kNoStep: none.
  std::uint64_t step() const { return step_; }
  std::uint64_t stop() const { return stop_; }

 private:
  std::chrono::milliseconds limit_;
  std::uint64_t step_ = wire::kNoStep;
  std::uint64_t stop_ = wire::kNoStep;
  std::optional<std::uint64_t> newest_;
  Clock::time_point set_at_;
};

}  // namespace bellows
