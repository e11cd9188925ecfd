// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/seats.h"

#include <fmt/core.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "paramserver/protocol/learner_steps.h"

namespace bellows::ps {
namespace {

/// Longer than any update takes that others have been able to do.
constexpr std::chrono::seconds kAlign{10};
/// From a grant until the learner has mapped all.
constexpr std::chrono::seconds kAttach{10};
/// The same if the server has ended meanwhile: what it was about to send never comes.
constexpr std::chrono::seconds kAttachAfterEnd{1};

/// What `read` makes of a learner's record in the current version of a shard, whose thread may be
/// at work: what is read of a version counts if that still is the current one.
template <typename Read>
auto read_current(const ControlView& control, std::uint32_t shard, std::uint32_t learner,
                  Read read) {
  for (;;) {
    const Current current = control.current(shard);
    const auto value = read(control.record(shard, current.buffer, learner));
    if (control.current(shard) == current) return value;
  }
}

}  // namespace

Seats::Seats(const ControlView& control, std::uint32_t first_sequence, Skip skip)
    : control_(control), first_sequence_(first_sequence), skip_(std::move(skip)) {}

Result<Seat> Seats::make(Fd process) const {
  std::uint32_t learner = 0;
  const auto is_taken = [this](std::uint32_t number) {
    return seats_.count(number) != 0 ||
           std::find(fenced_.begin(), fenced_.end(), number) != fenced_.end();
  };
  while (is_taken(learner)) ++learner;
  if (learner >= control_.geometry().learners)
    return Error{ErrorKind::busy,
                 fmt::format("there are {} learners already, as many as bellows-ps takes: start it "
                             "with more --learners",
                             seats_.size())};
  auto slot = SlotMemory::make(control_.geometry(), first_sequence_);
  if (!slot) return slot.error();
  auto bell = std::make_shared<const Fd>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!*bell) return errno_error("make", "an eventfd");
  Seat seat;
  Member& member = seat.joined.member;
  // Of one that never pushed anything, no record tells.
  member.who = {learner, std::max(1u, control_.fenced(learner).load() + 1), first_sequence_,
                least_total(learner) - slowest_clock()};
  for (std::uint32_t s = 0; s < control_.geometry().shards; ++s) {
    const Current current = control_.current(s);
    const std::uint32_t last = control_.record(s, current.buffer, learner).incarnation;
    member.who.incarnation = std::max(member.who.incarnation, last + 1);
  }
  seat.joined.slot = std::make_shared<const SlotMemory>(std::move(*slot));
  member.slot = seat.joined.slot->view();
  seat.joined.bell = std::move(bell);
  seat.process = std::make_shared<const Fd>(std::move(process));
  return seat;
}

std::uint64_t Seats::total(std::uint32_t shard, std::uint32_t learner) const {
  return read_current(control_, shard, learner,
                      [](const LearnerRecord& record) { return record.total.load(); });
}

// Where a learner took back what it had published, and was put out, shards have had different
// numbers of it: no shard may think that the next in its place has had fewer than it has.
std::uint64_t Seats::least_total(std::uint32_t learner) const {
  std::uint64_t least = total(0, learner);
  for (std::uint32_t s = 1; s < control_.geometry().shards; ++s)
    least = std::min(least, total(s, learner));
  return least;
}

/// Of the first member, 0.
std::uint64_t Seats::slowest_clock() const {
  std::optional<std::uint64_t> slowest;
  for (const auto& [learner, seat] : seats_) {
    const Member& member = seat.joined.member;
    if (member.last) continue;
    const std::uint64_t clock = clock_of(member.who);
    slowest = std::min(slowest.value_or(clock), clock);
  }
  return slowest.value_or(0);
}

void Seats::publish(std::uint64_t limit) {
  std::vector<Joined> joined;
  for (const auto& [learner, seat] : seats_) joined.push_back(seat.joined);
  members_.set(std::move(joined), limit);
}

// A turn waits for nobody, and a thread that sleeps looks again after some milliseconds.
void Seats::wait_for_turns() const {
  const std::uint64_t generation = members_.generation();
  for (const ShardThread* thread : threads_)
    while (thread->generation() < generation)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
}

/// Stops all shards at the same step: whatever one of them has applied, the others can, unless a
/// learner took back what it had published, or is fenced.
void Seats::align_steps() {
  publish(0);
  wait_for_turns();
  const std::uint32_t shards = control_.geometry().shards;
  const auto version = [this](std::uint32_t s) { return control_.current(s).version; };
  std::uint64_t most = 0;
  for (std::uint32_t s = 0; s < shards; ++s) most = std::max(most, version(s));
  const auto behind = [&](std::uint64_t wanted) {
    for (std::uint32_t s = 0; s < shards; ++s)
      if (version(s) < wanted) return true;
    return false;
  };
  publish(most);
  const auto deadline = Clock::now() + kAlign;
  while (has_unapplied() && behind(most) && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    // Of who is fenced, no shard applies what another one has.
    if (take_out([this](const Member& member) { return is_fenced(member) || !is_sound(member); }))
      publish(most);
  }
  publish(0);
  wait_for_turns();
  // Shards that lack what was taken back, or was fenced: their weights stay as they are.
  for (std::uint32_t s = 0; s < shards; ++s)
    if (version(s) < most) skip_(s, most);
}

void Seats::add(Seat seat, bool in_step) {
  if (in_step) align_steps();
  const std::uint32_t learner = seat.joined.member.who.learner;
  if (seat.since == Clock::time_point()) seat.since = Clock::now();
  seats_[learner] = std::move(seat);
  publish();
  // Else a shard would not look at what the learner reads when it chooses a buffer.
  wait_for_turns();
}

bool Seats::has_begun(const Member& member) const {
  for (std::uint32_t s = 0; s < control_.geometry().shards; ++s) {
    const Current current = control_.current(s);
    if (control_.record(s, current.buffer, member.who.learner).incarnation.load() ==
        member.who.incarnation)
      return true;
  }
  return false;
}

bool Seats::has_trained(std::uint32_t learner) const {
  const auto found = seats_.find(learner);
  return found != seats_.end() && has_begun(found->second.joined.member);
}

// In step with others a learner of which no shard has anything may have been about to be added.
void Seats::adopt(std::vector<Seat> seats, bool in_step) {
  std::vector<Seat> begin;
  for (Seat& seat : seats) {
    const Identity who = seat.joined.member.who;
    seat.since = Clock::now() - (kAttach - kAttachAfterEnd);
    if (is_fenced(seat.joined.member))
      fenced_.push_back(who.learner);
    else if (in_step && !has_begun(seat.joined.member))
      begin.push_back(std::move(seat));
    else
      seats_[who.learner] = std::move(seat);
  }
  publish();
  wait_for_turns();
  for (Seat& seat : begin) add(std::move(seat), true);
}

std::vector<std::uint32_t> Seats::left() const {
  std::vector<std::uint32_t> all;
  for (const auto& [learner, seat] : seats_) {
    const Member& member = seat.joined.member;
    const SlotHeader& header = member.slot.header();
    const bool never_came = header.attached.load() == 0 && Clock::now() - seat.since > kAttach;
    if (!member.last && (never_came || header.left.load() != 0)) all.push_back(learner);
  }
  return all;
}

void Seats::end(std::uint32_t learner) {
  const auto found = seats_.find(learner);
  if (found == seats_.end() || found->second.joined.member.last) return;
  Member& member = found->second.joined.member;
  const SlotHeader& header = member.slot.header();
  member.last = header.published.load();
  // One that has not mapped its memory yet may only be late, and has to see that it is out.
  if (header.attached.load() == 0 && *member.last == member.who.base)
    control_.fenced(learner).store(member.who.incarnation);
  publish();
}

/// What a shard has applied of a member.
std::uint32_t Seats::applied(const Member& member, std::uint32_t shard) const {
  return read_current(control_, shard, member.who.learner, [&member](const LearnerRecord& record) {
    return applied_in(record, member.who);
  });
}

bool Seats::is_applied(const Member& member, std::uint32_t sequence) const {
  for (std::uint32_t s = 0; s < control_.geometry().shards; ++s)
    if (applied(member, s) != sequence) return false;
  return true;
}

/// A learner can take back what it has published, when some shards have applied it and others have
/// not; these would wait for it.
bool Seats::is_sound(const Member& member) const {
  for (std::uint32_t s = 0; s < control_.geometry().shards; ++s) {
    const std::uint32_t applied = this->applied(member, s);
    // Afterwards: meanwhile it may have gone on.
    const std::uint32_t published =
        member.last ? *member.last : member.slot.header().published.load();
    if (distance(published, applied) < 0) return false;
  }
  return true;
}

bool Seats::is_fenced(const Member& member) const {
  return control_.fenced(member.who.learner).load() == member.who.incarnation;
}

/// Whether there is something for a shard to apply.
bool Seats::has_unapplied() const {
  return std::any_of(seats_.begin(), seats_.end(), [this](const auto& entry) {
    const Member& member = entry.second.joined.member;
    return !is_applied(member, member.last.value_or(member.slot.header().published.load()));
  });
}

bool Seats::take_out(const std::function<bool(const Member&)>& is_bad) {
  return std::erase_if(seats_, [&](const auto& entry) {
           const Member& member = entry.second.joined.member;
           if (!is_bad(member)) return false;
           control_.fenced(entry.first).store(member.who.incarnation);
           fenced_.push_back(entry.first);
           return true;
         }) > 0;
}

std::vector<std::uint32_t> Seats::take_fenced() { return std::exchange(fenced_, {}); }

std::vector<std::uint32_t> Seats::settle() {
  std::vector<std::uint32_t> gone;
  if (take_out([this](const Member& member) { return !is_sound(member); })) publish();
  for (const auto& [learner, seat] : seats_) {
    const auto& last = seat.joined.member.last;
    if (last && is_applied(seat.joined.member, *last)) gone.push_back(learner);
  }
  if (gone.empty()) return gone;
  for (const std::uint32_t learner : gone) seats_.erase(learner);
  publish();
  // Whoever gets the place next is told of its own gradients only.
  wait_for_turns();
  return gone;
}

void Seats::fence(const Identity& who) {
  const auto found = seats_.find(who.learner);
  if (found == seats_.end() || !found->second.joined.member.who.is_of(who)) return;
  seats_.erase(found);
  fenced_.push_back(who.learner);
  publish();
  wait_for_turns();
}

}  // namespace bellows::ps
