// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/cut.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <memory>

namespace bellows::ps {

Result<std::unique_ptr<Cut>> Cut::make(std::uint32_t shards) {
  std::unique_ptr<Cut> cut(new Cut(shards));
  cut->bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!cut->bell_) return errno_error("make", "an eventfd");
  return cut;
}

void Cut::change() {
  serial_.fetch_add(1, std::memory_order_acq_rel);
  eventfd_write(bell_.get(), 1);
}

void Cut::begin(Then then) {
  const std::lock_guard lock(mutex_);
  now_ = {now_.cut + 1, Phase::asking, then};
  reports_ = 0;
  target_ = {};
  pins_.assign(shards_, std::nullopt);
  change();
}

std::optional<std::vector<Current>> Cut::wait(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  const auto all = [this] {
    return std::all_of(pins_.begin(), pins_.end(), [](const auto& pin) { return pin.has_value(); });
  };
  if (!all_pinned_.wait_until(lock, until, all)) return std::nullopt;
  std::vector<Current> pins;
  for (const auto& pin : pins_) pins.push_back(*pin);
  return pins;
}

void Cut::end() {
  const std::lock_guard lock(mutex_);
  now_.phase = Phase::none;
  change();
}

Cut::Now Cut::now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

// The report and the hold are one step to the saver: the shard applies nothing from here on.
void Cut::report(std::uint64_t cut, std::span<const AppliedOf> applied, std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  if (now_.cut != cut || now_.phase != Phase::asking) return;
  target_.generation = std::max(target_.generation, generation);
  for (const AppliedOf& mine : applied) {
    const auto same =
        std::find_if(target_.applied.begin(), target_.applied.end(),
                     [&mine](const AppliedOf& other) { return other.who.is_of(mine.who); });
    if (same == target_.applied.end())
      target_.applied.push_back(mine);
    else if (distance(mine.applied, same->applied) > 0)
      same->applied = mine.applied;
  }
  if (++reports_ < shards_) return;
  now_.phase = Phase::aimed;
  change();
}

Cut::Target Cut::target() const {
  const std::lock_guard lock(mutex_);
  return target_;
}

void Cut::pinned(std::uint64_t cut, std::uint32_t shard, Current at) {
  const std::lock_guard lock(mutex_);
  if (now_.cut != cut) return;
  pins_[shard] = at;
  all_pinned_.notify_all();
}

void ShardCut::look(ShardSteps& steps, std::span<const Member> members, std::uint64_t generation) {
  if (const std::uint64_t serial = cut_->serial(); serial != seen_) {
    seen_ = serial;
    turn_to(cut_->now(), steps, members, generation);
  }
  // A member that joined after this shard had reported may be in the target.
  if (mode_ != Mode::level || generation < target_.generation) return;
  if (std::any_of(members.begin(), members.end(),
                  [&](const Member& member) { return is_short(steps, member); }))
    return;
  mode_ = now_.then == Cut::Then::holds ? Mode::still : Mode::pinned;
  cut_->pinned(now_.cut, shard_, steps.pin());
}

void ShardCut::turn_to(const Cut::Now& now, ShardSteps& steps, std::span<const Member> members,
                       std::uint64_t generation) {
  const bool is_new = now.cut != now_.cut;
  now_ = now;
  if (now.phase == Cut::Phase::none || (is_new && mode_ != Mode::free)) {
    steps.unpin();
    mode_ = Mode::free;
  }
  if (now.phase == Cut::Phase::asking && mode_ == Mode::free) {
    std::vector<AppliedOf> applied;
    for (const Member& member : members)
      // What is to come of it nobody can rely on.
      if (!steps.is_fenced(member)) applied.push_back({member.who, steps.applied(member)});
    mode_ = Mode::held;
    cut_->report(now.cut, applied, generation);
  } else if (now.phase == Cut::Phase::aimed && mode_ == Mode::held) {
    target_ = cut_->target();
    mode_ = Mode::level;
  }
}

bool ShardCut::is_short(const ShardSteps& steps, const Member& member) const {
  if (steps.is_fenced(member)) return false;
  for (const AppliedOf& wanted : target_.applied)
    if (wanted.who.is_of(member.who)) return distance(wanted.applied, steps.applied(member)) > 0;
  return false;
}

bool ShardCut::allows(const ShardSteps& steps, const Member& member) const {
  switch (mode_) {
    case Mode::free:
    case Mode::pinned:
      return true;
    case Mode::level:
      return is_short(steps, member);
    case Mode::held:
    case Mode::still:
      break;
  }
  return false;
}

}  // namespace bellows::ps
