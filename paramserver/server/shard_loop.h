// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "paramserver/server/cut.h"

namespace bellows::ps {

enum class Mode : std::uint32_t {
  asynchronous = 0,  ///< a learner's gradient is applied when it is there
  synchronous = 1,   ///< when those of all learners are, summed in their order
  bounded = 2        ///< as asynchronous; learners wait who are too far ahead of the slowest
};

/// What the thread of a shard does again and again.
class ShardLoop {
 public:
  /// Is told of a learner that has written nonsense, and which, and takes it out of the members. It
  /// waits for nobody.
  using Fence = std::function<void(const Member&, const std::string& why)>;

  /// Without `cut` nobody saves.
  ShardLoop(ShardSteps steps, Mode mode, Fence fence, std::optional<ShardCut> cut = std::nullopt);

  static constexpr std::uint64_t kNoLimit = UINT64_MAX;

  /// Applies at most one gradient of each member, and none beyond a version. How many.
  /// `generation`: of the members.
  unsigned turn(std::span<const Member> members, std::uint64_t limit = kNoLimit,
                std::uint64_t generation = 0);
  ShardSteps& steps() { return steps_; }
  /// To be called when the members have changed.
  void tell_slowest(std::span<const Member> members) const {
    if (mode_ == Mode::bounded) steps_.tell_slowest(members);
    if (mode_ == Mode::synchronous) steps_.tell_missing(nullptr);
  }

 private:
  bool allows(const Member& member) const { return !cut_ || cut_->allows(steps_, member); }
  void fence(const Member& member, const std::string& why) const;
  unsigned update(std::span<const Member> members, std::span<const Member* const> from);

  ShardSteps steps_;
  Mode mode_;
  Fence fence_;
  std::optional<ShardCut> cut_;
};

}  // namespace bellows::ps
