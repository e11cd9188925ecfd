// SPDX-License-Identifier: Apache-2.0
#include "paramserver/protocol/shard_steps.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

namespace bellows::ps {
namespace {

bool waits(const Member& member) {
  return member.slot.header().waiting.load(std::memory_order_seq_cst) != 0;
}

void wake_all(std::uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

ShardSteps::ShardSteps(const ControlView& control, const ArrayView& weights,
                       const ArrayView& states, std::uint32_t shard, ApplyRule rule)
    : control_(control),
      weights_(weights),
      states_(states),
      shard_(shard),
      rule_(std::move(rule)) {}

Current ShardSteps::current() const {
  return Current::of(control_.shard(shard_).current.load(std::memory_order_relaxed));
}

std::uint32_t ShardSteps::applied(const Member& member) const {
  return applied_in(control_.record(shard_, current().buffer, member.who.learner), member.who);
}

void ShardSteps::fence(const Member& member) const {
  control_.fenced(member.who.learner).store(member.who.incarnation, std::memory_order_seq_cst);
}

bool ShardSteps::is_fenced(const Member& member) const {
  return control_.fenced(member.who.learner).load(std::memory_order_relaxed) ==
         member.who.incarnation;
}

ShardSteps::Found ShardSteps::look(const Member& member) const {
  if (is_fenced(member)) return Found::fenced;
  const std::uint32_t published =
      member.last ? *member.last : member.slot.header().published.load(std::memory_order_seq_cst);
  const std::int32_t ahead = distance(published, applied(member));
  if (ahead == 0) return Found::nothing;
  // There are two payloads.
  return ahead == 1 || ahead == 2 ? Found::gradient : Found::nonsense;
}

void ShardSteps::read_pin(const Member& member) {
  // Who has ended reads nothing any more.
  if (member.last) return;
  pinned_.push_back(Current::of(member.slot.pin(shard_).load(std::memory_order_seq_cst)).buffer);
}

std::uint32_t ShardSteps::choose() const {
  const auto is_taken = [&](std::uint32_t buffer) {
    return buffer == current().buffer || buffer == saved_.buffer ||
           std::find(pinned_.begin(), pinned_.end(), buffer) != pinned_.end();
  };
  // There is one: a learner has one pin. The lowest was written to last, and may still be in the
  // cache.
  std::uint32_t buffer = 0;
  while (is_taken(buffer)) ++buffer;
  return buffer;
}

std::uint32_t ShardSteps::state_of(std::uint32_t buffer) const {
  return control_.record(shard_, buffer).state.load(std::memory_order_relaxed);
}

std::uint32_t ShardSteps::free_state() const {
  const std::uint32_t used = state_of(current().buffer);
  const std::uint32_t saved = saved_.buffer == Current::kNoBuffer ? used : state_of(saved_.buffer);
  std::uint32_t copy = 0;
  while (copy == used || copy == saved) ++copy;
  return copy;
}

std::optional<Nonsense> ShardSteps::apply(std::uint32_t buffer,
                                          std::span<const Member* const> from) const {
  const Current old = current();
  const ShardWords& words = control_.shard(shard_);
  std::vector<const void*> gradients;
  std::vector<float> scales;
  std::vector<const std::uint64_t*> rows;
  for (const Member* member : from) {
    const std::uint32_t sequence = next(*member);
    gradients.push_back(member->slot.payload(sequence, words.begin));
    scales.push_back(member->slot.header().scale[sequence % 2]);
    rows.push_back(member->slot.rows(sequence, 0));
  }
  ShardUpdate update;
  update.version = old.version + 1;
  update.elements = words.count;
  update.weights = weights_.buffer(shard_, old.buffer);
  update.new_weights = weights_.buffer(shard_, buffer);
  update.from_buffer = old.buffer;
  update.to_buffer = buffer;
  update.from_state = state_of(old.buffer);
  update.to_state = free_state();
  for (std::uint32_t i = 0; i < control_.geometry().states; ++i) {
    update.state[i] = states_.buffer(shard_, kStateCopies * i + update.from_state);
    update.new_state[i] = states_.buffer(shard_, kStateCopies * i + update.to_state);
  }
  update.gradients = gradients;
  update.scales = scales;
  update.rows = rows;
  return rule_(update);
}

// What a learner says of it is read once, and believed as far as it can be.
void ShardSteps::count(std::span<const Member* const> from) const {
  ShardWords& words = control_.shard(shard_);
  const std::uint64_t version = current().version;
  std::uint64_t sum = 0, most = words.most_staleness.load(std::memory_order_relaxed);
  for (const Member* member : from) {
    const std::uint64_t pulled =
        member->slot.pulled(next(*member), shard_).load(std::memory_order_relaxed);
    const std::uint64_t staleness = version - std::min(pulled, version);
    sum += staleness;
    most = std::max(most, staleness);
  }
  const auto set = [](Word& word, std::uint64_t value) {
    word.store(value, std::memory_order_relaxed);
  };
  set(words.staleness, words.staleness.load(std::memory_order_relaxed) + sum);
  set(words.gradients, words.gradients.load(std::memory_order_relaxed) + from.size());
  set(words.most_staleness, most);
}

// Each with release, as applied_in loads with acquire: who sees an entry of a buffer that is used
// again also sees that the version it loaded is no longer the current one.
void ShardSteps::record(std::uint32_t buffer, std::span<const Member* const> from) const {
  const std::uint32_t old = current().buffer;
  const auto copy = [](auto& to, const auto& value) {
    to.store(value.load(std::memory_order_relaxed), std::memory_order_release);
  };
  control_.record(shard_, buffer).state.store(free_state(), std::memory_order_relaxed);
  for (std::uint32_t l = 0; l < control_.geometry().learners; ++l) {
    const LearnerRecord& before = control_.record(shard_, old, l);
    LearnerRecord& after = control_.record(shard_, buffer, l);
    copy(after.incarnation, before.incarnation);
    copy(after.applied, before.applied);
    copy(after.total, before.total);
  }
  for (const Member* member : from) {
    LearnerRecord& record = control_.record(shard_, buffer, member->who.learner);
    record.applied.store(next(*member), std::memory_order_release);
    record.incarnation.store(member->who.incarnation, std::memory_order_release);
    record.total.fetch_add(1, std::memory_order_release);
  }
}

void ShardSteps::flip(std::uint32_t buffer) const {
  const Current next = {current().version + 1, buffer};
  control_.shard(shard_).current.store(next.word(), std::memory_order_seq_cst);
}

// Sequentially consistent, as a learner's look after it has said that it waits.
void ShardSteps::tell_slowest(std::span<const Member> members) const {
  const std::uint32_t buffer = current().buffer;
  Slowest slowest{UINT64_MAX >> 16, Slowest::kNobody};
  for (const Member& member : members) {
    if (member.last || is_fenced(member)) continue;
    const LearnerRecord& record = control_.record(shard_, buffer, member.who.learner);
    const std::uint64_t clock = record.total.load(std::memory_order_relaxed) - member.who.before;
    if (clock < slowest.clock) slowest = {clock, member.who.learner};
  }
  Word& word = control_.shard(shard_).slowest;
  if (word.load(std::memory_order_relaxed) == slowest.word()) return;
  word.store(slowest.word(), std::memory_order_seq_cst);
  if (std::any_of(members.begin(), members.end(), waits))
    wake_all(control_.shard(shard_).slowest_word());
}

// For people: nobody sleeps on it.
void ShardSteps::tell_missing(const Member* member) const {
  const Slowest missing = member ? Slowest{current().version, member->who.learner} : Slowest{};
  Word& word = control_.shard(shard_).slowest;
  if (word.load(std::memory_order_relaxed) != missing.word())
    word.store(missing.word(), std::memory_order_relaxed);
}

void ShardSteps::skip_to(std::uint64_t version) const {
  const Current next = {version, current().buffer};
  control_.shard(shard_).current.store(next.word(), std::memory_order_seq_cst);
}

// Sequentially consistent, as the flip: either the learner sees the flip before it sleeps, or it is
// seen that it waits.
bool ShardSteps::must_wake(std::span<const Member* const> from) const {
  return std::any_of(from.begin(), from.end(), [](const Member* each) { return waits(*each); });
}

void ShardSteps::wake() const { wake_all(control_.shard(shard_).sleepers_word()); }

}  // namespace bellows::ps
