// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "checkpoint/protocol/protocol.h"

namespace bellows {

/// From where the ranks of one attempt restored their step.
class RestoreTally {
 public:
  /// Counts event::Restored, of which a rank may have several, as a Python program has. Once all
  /// ranks have restored and train or save: how much came from where.
  std::optional<std::string> add(const Event::Body& event, std::uint32_t world) {
    if (const auto* restored = std::get_if<event::Restored>(&event)) {
      ranks_.insert(restored->rank);
      step_ = restored->step;
      memory_ += restored->from_memory;
      store_ += restored->from_store;
    }
    const auto* progress = std::get_if<event::Progress>(&event);
    const bool trains =
        std::holds_alternative<event::Shard>(event) || (progress && progress->max_step);
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
