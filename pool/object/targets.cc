// SPDX-License-Identifier: Apache-2.0
#include "pool/object/targets.h"

#include <algorithm>

#include "pool/wire/pool.pb.h"

namespace bellows::pool {
namespace {

// Before a member that could not be reached or was full is asked again.
constexpr std::chrono::milliseconds kPause{100};
constexpr std::chrono::milliseconds kLongestPause{2000};
// Those that may be asked again come without a notice.
constexpr std::chrono::milliseconds kLook{20};

}  // namespace

std::shared_ptr<Target> Targets::find(const Member& member) const {
  for (const auto& target : ready_)
    if (target->job == member.job() && target->address == member.address() &&
        target->incarnation == member.incarnation())
      return target;
  return nullptr;
}

std::shared_ptr<Target> Targets::open(const Member& member) const {
  auto target = std::make_shared<Target>();
  target->job = member.job();
  target->address = member.address();
  target->incarnation = member.incarnation();
  target->incarnation_text = std::to_string(member.incarnation());
  target->channel = open_channel(member.address(), key_);
  target->pause = kPause;
  return target;
}

void Targets::update(const Members& said) {
  std::vector<std::shared_ptr<Target>> ready;
  const std::lock_guard lock(mutex_);
  for (const Member& member : said.member()) {
    if (member.state() != READY || member.address().empty()) continue;
    auto known = find(member);
    ready.push_back(known ? std::move(known) : open(member));
  }
  // Connects before the first call.
  for (const auto& target : ready)
    if (!target->well) target->channel->GetState(true);
  ready_ = std::move(ready);
  trouble_ = "its keeper names no member that is ready";
  changed_.notify_all();
}

void Targets::set_trouble(std::string trouble) {
  const std::lock_guard lock(mutex_);
  trouble_ = std::move(trouble);
}

std::string Targets::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

/// Of two random ones the one with fewer calls, if it is well; else the best of all.
std::shared_ptr<Target> Targets::best() {
  const std::size_t count = ready_.size();
  if (count == 0) return nullptr;
  const std::size_t first = random_() % count;
  const std::size_t second = count == 1 ? 0 : (first + 1 + random_() % (count - 1)) % count;
  const auto& better =
      ready_[ready_[second]->outstanding < ready_[first]->outstanding ? second : first];
  if (better->well) return better;
  const auto now = Clock::now();
  const auto rank = [](const Target& target) {
    const bool reached = target.well || target.channel->GetState(false) == GRPC_CHANNEL_READY;
    return std::pair(!reached, target.outstanding);
  };
  std::shared_ptr<Target> best;
  for (const auto& target : ready_)
    if (!target->gone && target->not_before <= now && (!best || rank(*target) < rank(*best)))
      best = target;
  return best;
}

std::shared_ptr<Target> Targets::take(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto target = best()) {
      ++target->outstanding;
      return target;
    }
    const auto now = Clock::now();
    if (now >= deadline) return nullptr;
    changed_.wait_until(lock, std::min(deadline, now + Clock::duration(kLook)));
  }
}

void Targets::give(Target& target, End end) {
  const std::lock_guard lock(mutex_);
  --target.outstanding;
  if (end == End::answered) {
    target.well = !target.gone;
    target.pause = kPause;
  } else if (end == End::gone) {
    target.well = false;
    target.gone = true;
  } else if (end != End::other) {
    target.well = false;
    target.not_before = Clock::now() + target.pause;
    target.pause = std::min<Clock::duration>(2 * target.pause, kLongestPause);
  }
}

}  // namespace bellows::pool
