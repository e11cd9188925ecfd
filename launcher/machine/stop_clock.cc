// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/stop_clock.h"

#include <fmt/core.h>

#include <algorithm>

namespace bellows {
namespace {

constexpr std::size_t kSavesKept = 4;
constexpr std::size_t kStepsKept = 16;
/// File systems are slower when many jobs save, as before a shutdown.
constexpr double kSaveMayTake = 1.5;
constexpr double kStepMayTake = 2;
/// Time for what surrounds the save: the gate, the ranks' end and the requeue.
constexpr double kMargin = 10;
constexpr double kUnknownSave = 30;
/// A run that is shorter than its stop must still make progress.
constexpr double kMostOfTotal = 0.5;

std::string too_short(double wanted, double total) {
  return fmt::format(
      "a stop may take {:.0f} s, but the time limit leaves a run {:.0f} s: it stops after half of "
      "that, which may be too late for a save; ask for more time (sbatch --time)",
      wanted, total);
}

}  // namespace

// Without GraceTime the job is requeued at once: it is no longer running then, and nobody can stop
// it any more.
std::string time_of_preemption(const SlurmGrace& grace) {
  if (grace.preempt > 0) return fmt::format("{} s (GraceTime)", grace.preempt);
  return fmt::format(
      "0 s (GraceTime; what KillWait leaves after SIGTERM, {} s, is too short for a stop)",
      grace.kill_wait);
}

void StopClock::note_save(std::uint64_t bytes, double seconds) {
  saves_.push_back({bytes, std::max(seconds, 0.0)});
  if (saves_.size() > kSavesKept) saves_.pop_front();
}

void StopClock::note_step(std::uint64_t step, double now) {
  if (last_step_ && step > *last_step_) {
    steps_.push_back((now - last_step_at_) / static_cast<double>(step - *last_step_));
    if (steps_.size() > kStepsKept) steps_.pop_front();
  }
  if (last_step_ && step == *last_step_) return;
  last_step_ = step;
  last_step_at_ = now;
}

double StopClock::save_seconds() const {
  if (saves_.empty()) return kUnknownSave;
  double worst = 0;
  for (const Save& save : saves_) {
    double growth = save.bytes == 0 ? 1
                                    : static_cast<double>(saves_.back().bytes) /
                                          static_cast<double>(save.bytes);
    worst = std::max(worst, save.seconds * std::max(growth, 1.0));
  }
  return worst;
}

double StopClock::step_seconds() const {
  return steps_.empty() ? 0 : *std::max_element(steps_.begin(), steps_.end());
}

double StopClock::wanted() const {
  return kSaveMayTake * save_seconds() + kStepMayTake * step_seconds() + kMargin;
}

double StopClock::lead(double total) const { return std::min(wanted(), kMostOfTotal * total); }

double StopClock::lead_of_own(std::uint32_t grace, double total) {
  return std::min(grace + kMargin, kMostOfTotal * total);
}

std::string StopClock::complaint(const SlurmGrace& grace) const {
  double needed = save_seconds() + step_seconds();
  if (saves_.empty() || !grace.preempts || needed <= grace.preempt) return "";
  return fmt::format(
      "a step and a save of {:.1f} MB take about {:.1f} s, but Slurm gives a preempted job here "
      "{}: "
      "after a preemption it continues from its last checkpoint before that, so save often",
      static_cast<double>(saves_.back().bytes) / 1e6, needed, time_of_preemption(grace));
}

std::string StopClock::complaint(double total) const {
  if (saves_.empty() || wanted() <= kMostOfTotal * total) return "";
  return too_short(wanted(), total);
}

std::string StopClock::complaint_of_own(std::uint32_t grace, double total) {
  const double wanted = grace + kMargin;
  return wanted <= kMostOfTotal * total ? "" : too_short(wanted, total);
}

}  // namespace bellows
