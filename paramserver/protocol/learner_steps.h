// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "paramserver/memory/views.h"

namespace bellows::ps {

/// Of sequences that wrap: how far `later` is behind `earlier`.
inline std::int32_t distance(std::uint32_t later, std::uint32_t earlier) {
  return static_cast<std::int32_t>(later - earlier);
}

/// Which learner, as records name it.
struct Identity {
  std::uint32_t learner = 0;
  std::uint32_t incarnation = 0;
  std::uint32_t base = 0;  ///< the sequence before its first
  /// What its place's total is more than its clock. A clock counts a learner's gradients, from that
  /// of the slowest when it joined.
  std::uint64_t before = 0;

  /// Whether they are one learner's, from one join on.
  bool is_of(const Identity& other) const {
    return learner == other.learner && incarnation == other.incarnation;
  }
};

/// The last sequence that a record says is applied.
std::uint32_t applied_in(const LearnerRecord& record, const Identity& who);

/// What a learner does to the shared memory, one step at a time; ../model/PROOF.md says why the
/// order matters. A learner puts them together: see client/. A test may stop between any two.
class LearnerSteps {
 public:
  LearnerSteps() = default;
  LearnerSteps(const ControlView& control, const SlotView& slot, const Identity& who)
      : control_(control), slot_(slot), who_(who) {}

  Current load(std::uint32_t shard) const;

  enum class Seen {
    applied,  ///< the shard has this sequence
    missing,  ///< it has not yet
    again     ///< another version is current by now: load it
  };
  /// What the record of a version that was loaded says.
  Seen see(std::uint32_t shard, Current loaded, std::uint32_t sequence) const;
  /// The payload of this sequence is complete, and the learner will not write to it any more.
  void publish(std::uint32_t sequence) const;
  /// Whether a shard's thread may sleep, and has to be woken after a publish.
  bool must_wake() const;

  /// From here on, if the version is still the current one, its buffer stays as it is.
  void pin(std::uint32_t shard, Current loaded) const;
  bool is_current(std::uint32_t shard, Current pinned) const;

 private:
  ControlView control_;
  SlotView slot_;
  Identity who_;
};

}  // namespace bellows::ps
