// SPDX-License-Identifier: Apache-2.0
// Supervisor's view of the time that is left.
#include <fmt/core.h>

#include <algorithm>

#include "launcher/record/fruitless_runs.h"
#include "launcher/run/supervisor.h"

namespace bellows {
namespace {

/// A cluster in trouble gets longer from run to run, in all about half an hour.
constexpr std::uint32_t kLatest = 64;

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
  const auto ask = [this] { return probe_limits(slurm_, job_.id); };
  if (auto limits = time_.look(ask, seconds_now())) heed(*limits);
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
// from other failures.
bool Supervisor::leads_nowhere() {
  if (progressed_ || own_saved_ || (!time_limit_near_ && !out_of_tries_)) return false;
  if (stop_) {
    stop_->reason += ", without a new checkpoint";
    stop_->fruitless = true;
  }
  auto history = read_history(context_.checkpoint_dir, job_.id);
  if (!history) return false;
  const std::uint32_t runs = fruitless_runs(history->events);
  if (out_of_tries_) {
    later_ = std::min(1u << std::min(runs, 31u), kLatest);
    cause_ += fmt::format("; {} runs in a row without a new checkpoint", runs + 1);
    return runs + 1 >= RestartBudget::kMostOfCluster;
  }
  cause_ = "the time limit comes again without a new checkpoint";
  return runs >= budget_.most();
}

}  // namespace bellows
