// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "common/fd.h"
#include "common/result.h"
#include "paramserver/protocol/shard_steps.h"

namespace bellows::ps {

/// What a learner has published and a shard has applied.
struct AppliedOf {
  Identity who;
  std::uint32_t applied = 0;
};

/// One version of each shard in which all have applied the same gradients, for a saver to read
/// while they go on (see ../model/cut.pml). Each shard reports what it has applied and holds; what
/// any of them has, the others can apply, since it is published. A saver and the shards' threads
/// share it.
class Cut {
 public:
  using Clock = std::chrono::steady_clock;

  static Result<std::unique_ptr<Cut>> make(std::uint32_t shards);

  /// The saver's side. What shards do after it: go on, or apply nothing until the cut ends.
  enum class Then { goes_on, holds };
  void begin(Then then);
  /// The version of each shard that stays as it is; nothing: it took longer.
  std::optional<std::vector<Current>> wait(Clock::time_point until);
  void end();

  /// The shards' side.
  enum class Phase { none, asking, aimed };
  struct Now {
    std::uint64_t cut = 0;  ///< its number
    Phase phase = Phase::none;
    Then then = Then::goes_on;
  };
  /// Changes with whatever now() says.
  std::uint64_t serial() const { return serial_.load(std::memory_order_acquire); }
  Now now() const;
  /// `generation`: of the members of whom it tells.
  void report(std::uint64_t cut, std::span<const AppliedOf> applied, std::uint64_t generation);
  struct Target {
    std::vector<AppliedOf> applied;
    std::uint64_t generation = 0;
  };
  Target target() const;
  void pinned(std::uint64_t cut, std::uint32_t shard, Current at);
  /// An eventfd that is rung when a shard has something to do.
  const Fd& bell() const { return bell_; }

 private:
  explicit Cut(std::uint32_t shards) : shards_(shards) {}
  void change();

  const std::uint32_t shards_;
  Fd bell_;
  std::atomic<std::uint64_t> serial_{0};
  mutable std::mutex mutex_;
  std::condition_variable all_pinned_;
  Now now_;
  std::uint32_t reports_ = 0;
  Target target_;
  std::vector<std::optional<Current>> pins_;
};

/// What one shard does for cuts, between its updates. Its thread's alone.
class ShardCut {
 public:
  ShardCut(Cut& cut, std::uint32_t shard) : cut_(&cut), shard_(shard) {}

  /// `generation`: of the members.
  void look(ShardSteps& steps, std::span<const Member> members, std::uint64_t generation);
  /// Whether the next gradient of a member may be applied now.
  bool allows(const ShardSteps& steps, const Member& member) const;

 private:
  enum class Mode {
    free,
    held,    ///< it has reported, and applies nothing
    level,   ///< it applies what the target names, and nothing else
    pinned,  ///< it goes on
    still    ///< it has pinned, and applies nothing
  };

  void turn_to(const Cut::Now& now, ShardSteps& steps, std::span<const Member> members,
               std::uint64_t generation);
  bool is_short(const ShardSteps& steps, const Member& member) const;

  Cut* cut_;
  std::uint32_t shard_;
  Mode mode_ = Mode::free;
  std::uint64_t seen_ = 0;
  Cut::Now now_;
  Cut::Target target_;
};

}  // namespace bellows::ps
