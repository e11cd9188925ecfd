// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/gate.h"

#include <fmt/core.h>

namespace bellows {

void Gate::set(std::optional<std::uint64_t> step, Clock::time_point now) {
  step_ = step.value_or(wire::kNoStep);
  set_at_ = now;
}

Status Gate::stop_at(std::optional<std::uint64_t> step) {
  if (!step || step_ != *step) {
    return Error{ErrorKind::invalid,
                 "stop must name the step of the gate that is set now; set a new gate"};
  }
  if (newest_ && *newest_ >= *step) {
    return Error{ErrorKind::invalid, fmt::format("a rank had reached step {} before the gate was "
                                                 "set, and may have passed it; set a later gate",
                                                 *newest_)};
  }
  stop_ = *step;
  return {};
}

std::optional<Error> Gate::expire(Clock::time_point now, std::uint64_t* step) {
  if (step_ == wire::kNoStep || stop_ != wire::kNoStep || now - set_at_ < limit_) return {};
  *step = step_;
  step_ = wire::kNoStep;
  return Error{
      ErrorKind::unavailable,
      fmt::format("no decision came within {} ms: the gate is open again", limit_.count())};
}

}  // namespace bellows
