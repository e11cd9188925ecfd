// SPDX-License-Identifier: Apache-2.0
// Supervisor's view of the time that is left.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/supervisor.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

// A limit can be moved at any time; a slurmctld with thousands of jobs has more to do than tell.
constexpr double kLookAtLeast = 60;
constexpr double kLookAtMost = 1;
constexpr std::size_t kHistory = 1000;
constexpr const char* kFruitless = "time limit, without a new checkpoint";

}  // namespace

double Supervisor::seconds_now() const {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// Only ranks that can save are worth a stop, and only once.
bool Supervisor::can_stop_in_time() const {
  return phase_ == Phase::running && !stop_ &&
         (saves_by_itself() || joined_.size() >= layout_.world());
}

void Supervisor::watch_time() {
  const double now = seconds_now();
  if (auto limits = limits_.take()) {
    heed(*limits);
  } else if (!limits_.asking() && now >= look_at_) {
    look_at_ = now + kLookAtLeast;
    limits_.ask(slurm_, job_.id);
  }
}

void Supervisor::heed(const JobLimits& limits) {
  grace_ = limits.grace;
  complain_of_grace();
  const auto total = static_cast<double>(limits.total);
  const auto left = static_cast<double>(limits.left);
  const double lead = saves_by_itself() ? StopClock::lead_of_own(context_.options.own.grace, total)
                                        : clock_.lead(total);
  look_at_ = seconds_now() + std::clamp((left - lead) / 2, kLookAtMost, kLookAtLeast);
  if (!can_stop_in_time()) return;
  if (limits.preempted) return request_stop({"preemption", std::nullopt, 0});
  if (left > lead) return;
  say(fmt::format("the time limit comes in {:.0f} s, and to stop may take {:.0f} s", left, lead));
  time_limit_near_ = true;
  request_stop({"time limit", std::nullopt, 0});
}

// As soon as it is known how long a save takes.
void Supervisor::complain_of_grace() {
  if (!grace_ || said_grace_) return;
  const OwnCheckpoint& own = context_.options.own;
  std::string complaint = own.possible() ? own.complaint(*grace_) : clock_.complaint(*grace_);
  if (complaint.empty()) return;
  said_grace_ = true;
  say(complaint);
}

void Supervisor::note_save_time(const Event& event) {
  if (event.kind == Event::Kind::shard) {
    SaveSeen& seen = seen_saves_[*event.step];
    seen.bytes += event.shard.size + event.shard.index_size;
    seen.begun = std::min(seen.begun, seconds_now() - static_cast<double>(event.took_ms) / 1000);
    return;
  }
  if (event.kind != Event::Kind::committed) return;
  if (auto seen = seen_saves_.find(*event.step); seen != seen_saves_.end())
    clock_.note_save(seen->second.bytes, seconds_now() - seen->second.begun);
  seen_saves_.erase(seen_saves_.begin(), seen_saves_.upper_bound(*event.step));
  complain_of_grace();
}

// Slurm tells every step of a preemption, and `scancel --signal` reaches steps only.
void Supervisor::heed_signal(const std::string& signal) {
  // The other agents of a step in which one died may be ended with SIGTERM too: Slurm knows more.
  if (signal == "TERM") must_ask_slurm_ = true;
  if (signal != "USR1" || stop_) return;
  say("signal USR1: stopping at a checkpoint");
  request_stop({"signal USR1", std::nullopt, 0});
}

// A run that got nowhere would get nowhere again, so a job comes back from that as often only as
// from other failures. Runs do not know of each other but by the history.
bool Supervisor::leads_nowhere() {
  if (progressed_ || own_saved_) return false;
  if (stop_) stop_->reason = kFruitless;
  auto events = read_events(context_.checkpoint_dir, job_.id, kHistory);
  if (!events) return false;
  std::uint32_t fruitless = 0;
  for (const JobEvent& event : *events) {
    if (event.event == "STORING" || event.cause.starts_with("committed step")) fruitless = 0;
    if (event.event == "QUEUED" && event.cause == kFruitless) ++fruitless;
  }
  return fruitless >= budget_.most();
}

}  // namespace bellows
