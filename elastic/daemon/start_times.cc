// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/start_times.h"

#include <utility>

#include "slurm/requeue.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

/// Launchers report more often.
constexpr auto kAlive = 5s;

/// Its launcher, of the run that slurmctld holds for one to come, still reports.
bool is_forgotten(const SlurmJob& job, const JobNotes& notes, std::time_t now,
                  JobBook::Clock::time_point time) {
  return notes.has_run && notes.report && notes.report->restarts == job.restarts &&
         time - notes.heard <= kAlive &&
         job.times.begin <= now + requeue_clock::kForgottenRunClears;
}

}  // namespace

void StartTimes::mend(Slurm& slurm, std::vector<SlurmJob>& jobs,
                      const std::map<std::uint32_t, JobNotes>& notes, std::time_t now,
                      JobBook::Clock::time_point time) {
  std::map<std::uint32_t, Sight> seen;
  for (SlurmJob& job : jobs) {
    const auto of_job = notes.find(job.id);
    if (of_job == notes.end()) continue;
    const bool waits = job.state == SlurmState::pending && !job.completing;
    Sight& sight = seen[job.id] = {now, job.restarts, waits};
    SlurmJobChange change;
    if (waits && is_forgotten(job, of_job->second, now, time))
      change.begin_time = now + requeue_clock::kAfterForgottenRun;
    else if (waits && is_put_off(job, now))
      // A node that was set down may only have been slow, and ends what is left of the run.
      change.begin_time = now + requeue_clock::kAfterKilledLauncher;
    else
      continue;
    if (slurm.change(job, change).ok())
      job.times.begin = *change.begin_time;
    else if (const auto before = seen_.find(job.id); before != seen_.end())
      sight = before->second;
  }
  seen_ = std::move(seen);
}

/// Only Slurm sets a start so that its delay counts from the moment at which the job was done.
bool StartTimes::is_put_off(const SlurmJob& job, std::time_t now) const {
  const auto found = seen_.find(job.id);
  if (found == seen_.end()) return false;
  const Sight& before = found->second;
  if (before.waits && before.restarts == job.restarts) return false;
  const std::time_t done = job.times.begin - delay_;
  return done >= before.at && done <= now;
}

}  // namespace bellows
