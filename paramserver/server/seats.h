// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/fd.h"
#include "paramserver/server/shard_thread.h"

namespace bellows::ps {

/// A learner's place, from its join until all that it published is applied.
struct Seat {
  Joined joined;
  std::shared_ptr<const Fd> process;  ///< a pidfd
  std::chrono::steady_clock::time_point since{};
};

/// Which learners there are. It changes what the shards' threads see, all of which must run then,
/// and waits for them only as long as a turn takes.
class Seats {
 public:
  using Clock = std::chrono::steady_clock;

  /// Has a shard, whose thread does nothing meanwhile, be at a version without an update.
  using Skip = std::function<void(std::uint32_t shard, std::uint64_t version)>;
  Seats(const ControlView& control, std::uint32_t first_sequence, Skip skip);

  Members& members() { return members_; }
  void watch(std::vector<const ShardThread*> threads) { threads_ = std::move(threads); }

  /// A place for a new learner, which nobody sees yet. busy: there is none.
  Result<Seat> make(Fd process) const;
  /// When this returns, it takes part, and every shard knows what it reads. In step with others,
  /// from a step that no shard has begun.
  void add(Seat seat, bool in_step);
  /// How many gradients a learner has had applied, from what the slowest had when it joined.
  std::uint64_t clock_of(const Identity& who) const {
    return least_total(who.learner) - who.before;
  }
  /// After a restart: those of the server before.
  void adopt(std::vector<Seat> seats, bool in_step);
  /// Those that have left, or never came, and are not ended yet.
  std::vector<std::uint32_t> left() const;
  /// Whether a gradient of it was applied.
  bool has_trained(std::uint32_t learner) const;
  /// Only what it has published by now counts.
  void end(std::uint32_t learner);
  /// Takes out who has ended, and of whom all is applied. Who they were.
  std::vector<std::uint32_t> settle();
  /// Takes out one whose sequence makes no sense, if it is still there.
  void fence(const Identity& who);
  /// Who was taken out so, since the last call. Until then nobody gets its place.
  std::vector<std::uint32_t> take_fenced();

  const std::map<std::uint32_t, Seat>& all() const { return seats_; }

 private:
  void publish(std::uint64_t limit = ShardLoop::kNoLimit);
  void wait_for_turns() const;
  void align_steps();
  bool has_begun(const Member& member) const;
  std::uint64_t total(std::uint32_t shard, std::uint32_t learner) const;
  std::uint64_t least_total(std::uint32_t learner) const;
  std::uint64_t slowest_clock() const;
  std::uint32_t applied(const Member& member, std::uint32_t shard) const;
  bool is_applied(const Member& member, std::uint32_t sequence) const;
  bool is_sound(const Member& member) const;
  bool is_fenced(const Member& member) const;
  bool has_unapplied() const;
  bool take_out(const std::function<bool(const Member&)>& is_bad);

  ControlView control_;
  std::uint32_t first_sequence_;
  Skip skip_;
  std::map<std::uint32_t, Seat> seats_;
  Members members_;
  std::vector<const ShardThread*> threads_;
  std::vector<std::uint32_t> fenced_;
};

}  // namespace bellows::ps
