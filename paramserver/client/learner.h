// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/plain/handle.h"
#include "paramserver/protocol/learner_steps.h"

namespace bellows::ps {

/// What a server gives to a learner that joins.
struct Grant {
  Geometry geometry;
  Identity who;
  std::uint64_t clock = 0;
  std::uint32_t lead = UINT32_MAX;  ///< see PsMessage
};

/// A learner's side of the memory: pushes and pulls, without sockets. One thread at a time.
class Learner {
 public:
  /// Maps what the descriptors name; false (errno set): it cannot. `bell`: an eventfd that wakes
  /// the server.
  bool attach(const Grant& grant, int control, int weights, int slot, plain::Handle& bell);

  const Geometry& geometry() const { return control_view_.geometry(); }
  const ShardWords& shard(std::uint32_t shard) const { return control_view_.shard(shard); }

  /// Where the next gradient belongs, all of it, once no shard reads what was there. Null: that
  /// took longer than `wait_ms`; -1 waits for ever.
  unsigned char* gradient(int wait_ms);
  /// What that gradient says of rows; see SlotView.
  std::uint64_t* rows(std::uint64_t word) const { return slot_view_.rows(sequence_ + 1, word); }
  /// It is complete.
  void push(float scale);
  struct Others {
    bool come = true;           ///< false: that took longer
    std::uint32_t slowest = 0;  ///< the learner that is too far behind
  };
  /// Waits until this one is no further ahead of the slowest than it may be.
  Others wait_for_others(int wait_ms);
  /// The newest weights of a shard. They stay as they are until the next pull of it.
  const float* pull(std::uint32_t shard);
  /// What was pulled of it.
  Current pulled(std::uint32_t shard) const;
  /// In synchronous mode: for whom all wait; Slowest::kNobody: for nobody, or it is another mode.
  std::uint32_t missing() const {
    const Slowest word = Slowest::of(control_view_.shard(0).slowest.load());
    return lead_ == UINT32_MAX ? word.learner : Slowest::kNobody;
  }
  /// Waits until all that was pushed is applied. False: that took longer.
  bool drain(int wait_ms);
  /// Whether nothing of it is applied any more, and what it reads may change.
  bool is_fenced() const;
  /// Nothing more comes.
  void leave();
  std::uint32_t sequence() const { return sequence_; }
  /// The memory that both gradients are in.
  const plain::Mapping& slot() const { return slot_; }

 private:
  bool is_applied(std::uint32_t sequence, std::uint32_t* shard, Current* seen) const;
  bool wait_for(std::uint32_t sequence, int wait_ms);
  bool sleep_for(std::uint32_t sequence, std::int64_t nanoseconds);
  std::uint32_t* too_slow(Slowest* slowest) const;

  plain::Mapping control_;
  plain::Mapping weights_;
  plain::Mapping slot_;
  plain::Handle bell_;
  ControlView control_view_;
  SlotView slot_view_;
  ArrayView weights_view_;
  LearnerSteps steps_;
  Identity who_;
  std::uint32_t sequence_ = 0;
  std::uint64_t clock_ = 0;
  std::uint32_t lead_ = UINT32_MAX;
};

}  // namespace bellows::ps
