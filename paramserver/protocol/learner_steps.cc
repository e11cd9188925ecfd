// SPDX-License-Identifier: Apache-2.0
#include "paramserver/protocol/learner_steps.h"

namespace bellows::ps {

std::uint32_t applied_in(const LearnerRecord& record, const Identity& who) {
  return record.incarnation.load(std::memory_order_acquire) == who.incarnation
             ? record.applied.load(std::memory_order_acquire)
             : who.base;
}

Current LearnerSteps::load(std::uint32_t shard) const { return control_.current(shard); }

// The record of a version that is no longer current may be half of an update that comes to nothing,
// if the server is killed. The learner would write over a payload that the next one applies.
LearnerSteps::Seen LearnerSteps::see(std::uint32_t shard, Current loaded,
                                     std::uint32_t sequence) const {
  const std::uint32_t applied =
      applied_in(control_.record(shard, loaded.buffer, who_.learner), who_);
  if (!is_current(shard, loaded)) return Seen::again;
  return distance(applied, sequence) >= 0 ? Seen::applied : Seen::missing;
}

// Sequentially consistent, as must_wake: either the learner sees that a thread sleeps, or that
// thread, before it sleeps, sees what was published.
void LearnerSteps::publish(std::uint32_t sequence) const {
  slot_.header().published.store(sequence, std::memory_order_seq_cst);
}

bool LearnerSteps::must_wake() const {
  for (std::uint32_t s = 0; s < control_.geometry().shards; ++s)
    if (control_.shard(s).asleep.load(std::memory_order_seq_cst) != 0) return true;
  return false;
}

// Sequentially consistent, as is_current and the server's flip and look at pins: either the server
// sees the pin before it chooses the buffer, or the learner sees that it is no longer current.
void LearnerSteps::pin(std::uint32_t shard, Current loaded) const {
  slot_.pin(shard).store(loaded.word(), std::memory_order_seq_cst);
}

bool LearnerSteps::is_current(std::uint32_t shard, Current pinned) const {
  return control_.current(shard) == pinned;
}

}  // namespace bellows::ps
