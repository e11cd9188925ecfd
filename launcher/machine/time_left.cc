// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/time_left.h"

#include <algorithm>

namespace bellows {
namespace {

// A limit can change at any time, but a slurmctld with thousands of jobs must not be asked too
// often.
constexpr double kLookAtLeast = 60;
constexpr double kLookAtMost = 1;
constexpr double kLookUntilKnown = 5;
/// A slurmctld that takes longer is overloaded.
constexpr double kAnswersWithin = 2;

}  // namespace

void TimeLeft::begin_attempt() {
  seen_.clear();
  clock_.forget_steps();
}

void TimeLeft::note_save(const Event::Body& event, double now) {
  if (const auto* shard = std::get_if<event::Shard>(&event)) {
    SaveSeen& seen = seen_[shard->step];
    seen.bytes += shard->file.size + shard->file.index_size;
    seen.begun = std::min(seen.begun, now - static_cast<double>(shard->took_ms) / 1000);
    return;
  }
  const auto* committed = std::get_if<event::Committed>(&event);
  if (!committed) return;
  if (auto seen = seen_.find(committed->step); seen != seen_.end())
    clock_.note_save(seen->second.bytes, now - seen->second.begun);
  seen_.erase(seen_.begin(), seen_.upper_bound(committed->step));
}

void TimeLeft::note_pause(double now) {
  if (silent_since_ != kNever) silent_since_ = now;
}

double TimeLeft::look_at() const {
  if (!known_) return asked_ + kLookUntilKnown;
  return asked_ + std::clamp((stop_at_ - asked_) / 2, kLookAtMost, kLookAtLeast);
}

bool TimeLeft::is_due(double now) {
  if (now < look_at()) return false;
  asked_ = now;
  silent_since_ = std::min(silent_since_, now);
  return true;
}

void TimeLeft::note_answer(const JobLimits& limits, double now) {
  known_ = limits;
  known_at_ = now;
  silent_since_ = kNever;
}

// A known limit is reached whether slurmctld answers or not.
std::optional<JobLimits> TimeLeft::reckon(double now) const {
  if (!known_ || now < stop_at_ || now - silent_since_ < kAnswersWithin) return std::nullopt;
  JobLimits limits = *known_;
  limits.left -= static_cast<std::int64_t>(now - known_at_);
  return limits;
}

double TimeLeft::lead(const JobLimits& limits, const OwnCheckpoint* own, double now) {
  const auto total = static_cast<double>(limits.total);
  const double lead = own ? StopClock::lead_of_own(own->grace, total) : clock_.lead(total);
  stop_at_ = now + static_cast<double>(limits.left) - lead;
  return lead;
}

std::string TimeLeft::complaint(const OwnCheckpoint& own) {
  if (!known_) return "";
  std::string complaint;
  if (!complained_)
    complaint = own.possible() ? own.complaint(known_->grace) : clock_.complaint(known_->grace);
  if (!complaint.empty()) {
    complained_ = true;
  } else if (!complained_of_limit_) {
    const auto total = static_cast<double>(known_->total);
    complaint =
        own.possible() ? StopClock::complaint_of_own(own.grace, total) : clock_.complaint(total);
    complained_of_limit_ = !complaint.empty();
  }
  return complaint;
}

}  // namespace bellows
