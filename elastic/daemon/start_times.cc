// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/start_times.h"

#include <algorithm>
#include <utility>

#include "slurm/requeue.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

/// A node that says nothing for so long may have been set down and be back between two looks.
constexpr std::time_t kSilent = 10;

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

void StartTimes::mend(Slurm& slurm, ClusterState& cluster,
                      const std::map<std::uint32_t, JobNotes>& notes,
                      JobBook::Clock::time_point time) {
  std::map<std::string, std::time_t> silent;
  Answering answering;
  for (const SlurmNode& node : cluster.nodes) {
    const auto before = silent_since_.find(node.name);
    const std::time_t since = before == silent_since_.end() ? cluster.now : before->second;
    if (node.silent) silent[node.name] = since;
    const bool is_lost = node.lost || (node.silent && cluster.now - since >= kSilent);
    if (!is_lost) answering[node.name] = node.booted;
  }
  silent_since_ = std::move(silent);
  std::map<std::uint32_t, Sight> seen;
  for (SlurmJob& job : cluster.jobs) {
    const auto of_job = notes.find(job.id);
    if (of_job == notes.end()) continue;
    Sight& sight = seen[job.id] = look(job, cluster.now, answering);
    SlurmJobChange change;
    change.begin_time = start_of(job, of_job->second, sight, answering, time);
    if (!change.begin_time) continue;
    if (slurm.change(job, change).ok())
      job.times.begin = *change.begin_time;
    else if (const auto before = seen_.find(job.id); before != seen_.end())
      sight = before->second;
  }
  seen_ = std::move(seen);
}

StartTimes::Sight StartTimes::look(const SlurmJob& job, std::time_t now,
                                   const Answering& answering) const {
  Sight sight{now, job.restarts, job.state == SlurmState::pending && !job.completing, now, {}, {}};
  if (job.state == SlurmState::running) {
    for (const NodeShare& share : job.nodes) sight.nodes.push_back(share.node);
  } else if (const auto before = seen_.find(job.id); before != seen_.end()) {
    sight.ran = before->second.ran;
    sight.nodes = before->second.nodes;
    sight.lost = before->second.lost;
  }
  for (const std::string& node : sight.nodes)
    if (!answering.contains(node)) sight.lost.insert(node);
  return sight;
}

std::optional<std::time_t> StartTimes::start_of(const SlurmJob& job, const JobNotes& notes,
                                                Sight& sight, const Answering& answering,
                                                JobBook::Clock::time_point time) const {
  const std::time_t now = sight.at;
  if (!sight.waits) return std::nullopt;
  if (is_forgotten(job, notes, now, time)) return now + requeue_clock::kAfterForgottenRun;
  const std::time_t cleared = now + requeue_clock::kAfterReturnedNode;
  // One that was booted has nothing to end.
  const auto may_run_it = [&](const std::string& node) {
    const auto found = answering.find(node);
    return found != answering.end() && found->second <= sight.ran;
  };
  const bool returned = std::any_of(sight.lost.begin(), sight.lost.end(), may_run_it);
  // Later it has been up for long.
  if (returned && now <= sight.ran + delay_) {
    sight.lost.clear();
    if (job.times.begin < cleared || is_put_off(job, now)) return cleared;
    return std::nullopt;
  }
  return is_put_off(job, now) ? std::optional(now + requeue_clock::kAfterKilledLauncher)
                              : std::nullopt;
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
