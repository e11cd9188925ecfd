// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/protocol/protocol.h"

namespace bellows {

/// From where the ranks of one attempt restored their step.
class RestoreTally {
 public:
  /// Counts `restored` events, of which a rank may have several, as a Python program has. Once all
  /// ranks have restored and train or save: how much came from where.
  std::optional<std::string> add(const Event& event, std::uint32_t world) {
    if (event.kind == Event::Kind::restored) {
      ranks_.insert(event.rank);
      step_ = event.step.value_or(0);
      memory_ += event.from_memory;
      store_ += event.from_store;
    }
    const bool trains =
        event.kind == Event::Kind::shard || (event.kind == Event::Kind::progress && event.max_step);
    if (said_ || !trains || ranks_.empty() || ranks_.size() < world) return {};
    said_ = true;
    return fmt::format("restored step {}: {:.1f} MB from the agents' memory, {:.1f} MB from files",
                       step_, static_cast<double>(memory_) / 1e6,
                       static_cast<double>(store_) / 1e6);
  }

 private:
  bool said_ = false;
  std::uint64_t step_ = 0;
  std::set<std::uint32_t> ranks_;
  std::uint64_t memory_ = 0;
  std::uint64_t store_ = 0;
};

}  // namespace bellows
