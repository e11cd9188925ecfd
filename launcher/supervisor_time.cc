// SPDX-License-Identifier: Apache-2.0
// Supervisor's view of the time that is left.
#include <fmt/format.h>

#include "launcher/supervisor.h"

namespace bellows {
namespace {

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
  if (auto limits = time_.look(slurm_, job_.id, seconds_now())) heed(*limits);
}

void Supervisor::heed(const JobLimits& limits) {
  complain_of_grace();
  const double lead =
      time_.lead(limits, saves_by_itself() ? &context_.options.own : nullptr, seconds_now());
  if (!can_stop_in_time()) return;
  if (limits.preempted) return request_stop({"preemption", std::nullopt, 0});
  if (static_cast<double>(limits.left) > lead) return;
  say(fmt::format("the time limit comes in {} s, and to stop may take {:.0f} s", limits.left,
                  lead));
  time_limit_near_ = true;
  request_stop({"time limit", std::nullopt, 0});
}

void Supervisor::complain_of_grace() {
  const std::string complaint = time_.complaint(context_.options.own);
  if (!complaint.empty()) say(complaint);
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
