// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paramserver/memory/views.h"
#include "paramserver/protocol/learner_steps.h"

namespace bellows::ps {

/// A learner as a shard's thread sees it.
struct Member {
  Identity who;
  SlotView slot;
  /// Of one that has ended: the last sequence that counts.
  std::optional<std::uint32_t> last{};
};

/// New weights and states from old ones.
struct ShardUpdate {
  std::uint64_t version = 0;  ///< of the new ones
  std::uint64_t elements = 0;
  const float* weights = nullptr;
  float* new_weights = nullptr;
  const float* state[2] = {};
  float* new_state[2] = {};
  std::span<const void* const> gradients;  ///< in the order of learners
  std::span<const float> scales;           ///< of each of them
  /// What each of them says of rows, which may change at any time. See SlotView.
  std::span<const std::uint64_t* const> rows;
  // Where the arrays are: of the weights' buffers, and of the states' copies.
  std::uint32_t from_buffer = 0, to_buffer = 0;
  std::uint32_t from_state = 0, to_state = 0;
};

/// A gradient that cannot be applied, because its learner has written nonsense.
struct Nonsense {
  std::size_t gradient = 0;  ///< which of the update's
  std::string why;
};

/// After nonsense nothing is written.
using ApplyRule = std::function<std::optional<Nonsense>(const ShardUpdate&)>;

/// What the server does to one shard, one step at a time; ../model/PROOF.md says why the order
/// matters. Nobody else writes to the shard. Whatever a learner writes to its slot is read once.
class ShardSteps {
 public:
  /// `states` has kStateCopies for each of the geometry's states; the record of a version says
  /// which is its own.
  ShardSteps(const ControlView& control, const ArrayView& weights, const ArrayView& states,
             std::uint32_t shard, ApplyRule rule);

  enum class Found { nothing, gradient, nonsense, fenced };
  /// Whether the member has published the sequence that follows what the shard has of it.
  Found look(const Member& member) const;
  bool is_fenced(const Member& member) const;
  /// From here on nothing of the member is applied, by no shard and no server.
  void fence(const Member& member) const;
  /// The sequence that follows.
  std::uint32_t next(const Member& member) const { return applied(member) + 1; }
  std::uint32_t applied(const Member& member) const;
  /// Begins the choice of a buffer that nobody reads, nor can begin to: every member's pin has to
  /// be read, once, before it is chosen.
  void begin_choice() { pinned_.clear(); }
  void read_pin(const Member& member);
  std::uint32_t choose() const;
  /// The gradients that follow, one of each of these members, which look found. Nonsense: the
  /// buffer is as it was.
  std::optional<Nonsense> apply(std::uint32_t buffer, std::span<const Member* const> from) const;
  /// How stale they are.
  void count(std::span<const Member* const> from) const;
  /// That the buffer has them.
  void record(std::uint32_t buffer, std::span<const Member* const> from) const;
  /// The buffer's version becomes the current one.
  void flip(std::uint32_t buffer) const;
  /// Whether one of those whose gradients were applied may sleep, and has to be woken.
  bool must_wake(std::span<const Member* const> from) const;
  /// Wakes all who wait for the shard.
  void wake() const;

  /// Says which of the members has the fewest gradients, and wakes those who wait for it. Members
  /// that have ended hold up nobody.
  void tell_slowest(std::span<const Member> members) const;
  /// Says for which member a step waits; null: for none.
  void tell_missing(const Member* member) const;

  /// The current weights become those of a later version, too.
  void skip_to(std::uint64_t version) const;

  /// From here on the current version stays as it is, weights, states and record, for a saver to
  /// read, until unpin or the next pin.
  Current pin() { return saved_ = current(); }
  void unpin() { saved_ = Current{0, Current::kNoBuffer}; }

  Current current() const;

 private:
  std::uint32_t state_of(std::uint32_t buffer) const;
  std::uint32_t free_state() const;

  ControlView control_;
  ArrayView weights_;
  ArrayView states_;
  std::uint32_t shard_;
  ApplyRule rule_;
  Current saved_{0, Current::kNoBuffer};
  std::vector<std::uint32_t> pinned_;
};

}  // namespace bellows::ps
