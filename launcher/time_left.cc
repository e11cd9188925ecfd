// SPDX-License-Identifier: Apache-2.0
#include "launcher/time_left.h"

#include <algorithm>

namespace bellows {
namespace {

// A limit can be moved at any time; a slurmctld with thousands of jobs has more to do than tell.
constexpr double kLookAtLeast = 60;
constexpr double kLookAtMost = 1;

}  // namespace

void TimeLeft::begin_attempt() {
  seen_.clear();
  clock_.forget_steps();
}

void TimeLeft::add_poll(std::vector<pollfd>& fds) const {
  if (probe_.asking()) fds.push_back({probe_.fd(), POLLIN, 0});
}

void TimeLeft::note_save(const Event& event, double now) {
  if (event.kind == Event::Kind::shard) {
    SaveSeen& seen = seen_[*event.step];
    seen.bytes += event.shard.size + event.shard.index_size;
    seen.begun = std::min(seen.begun, now - static_cast<double>(event.took_ms) / 1000);
    return;
  }
  if (event.kind != Event::Kind::committed) return;
  if (auto seen = seen_.find(*event.step); seen != seen_.end())
    clock_.note_save(seen->second.bytes, now - seen->second.begun);
  seen_.erase(seen_.begin(), seen_.upper_bound(*event.step));
}

std::optional<JobLimits> TimeLeft::look(SlurmClient& slurm, std::uint32_t job, double now) {
  auto limits = probe_.take();
  if (limits) {
    grace_ = limits->grace;
  } else if (!probe_.asking() && now >= look_at_) {
    look_at_ = now + kLookAtLeast;
    probe_.ask(slurm, job);
  }
  return limits;
}

double TimeLeft::lead(const JobLimits& limits, const OwnCheckpoint* own, double now) {
  const auto total = static_cast<double>(limits.total);
  const double lead = own ? StopClock::lead_of_own(own->grace, total) : clock_.lead(total);
  const double until = static_cast<double>(limits.left) - lead;
  look_at_ = now + std::clamp(until / 2, kLookAtMost, kLookAtLeast);
  return lead;
}

std::string TimeLeft::complaint(const OwnCheckpoint& own) {
  if (!grace_ || complained_) return "";
  std::string complaint = own.possible() ? own.complaint(*grace_) : clock_.complaint(*grace_);
  complained_ = !complaint.empty();
  return complaint;
}

}  // namespace bellows
