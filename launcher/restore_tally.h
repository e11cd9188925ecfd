// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/protocol.h"

namespace bellows {

/// Where the ranks of one attempt had their step from.
class RestoreTally {
 public:
  /// Counts a `restored` event. Once all ranks have restored: how much came from where.
  std::optional<std::string> add(const Event& event, std::uint32_t world) {
    if (!ranks_.insert(event.rank).second) return {};
    memory_ += event.from_memory;
    store_ += event.from_store;
    if (ranks_.size() < world) return {};
    return fmt::format("restored step {}: {:.1f} MB from the agents' memory, {:.1f} MB from files",
                       event.step.value_or(0), static_cast<double>(memory_) / 1e6,
                       static_cast<double>(store_) / 1e6);
  }

 private:
  std::set<std::uint32_t> ranks_;
  std::uint64_t memory_ = 0;
  std::uint64_t store_ = 0;
};

}  // namespace bellows
