// SPDX-License-Identifier: Apache-2.0
// Supervisor's way back into Slurm's queue.
#include <fmt/core.h>

#include <thread>
#include <utility>

#include "launcher/base/exit_status.h"
#include "launcher/run/supervisor.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

constexpr auto kRequeueShowsWithin = 60s;
constexpr auto kRestartAfterRequeue = 5;  // seconds of the controller's clock
constexpr auto kForgottenRunIsClearedWithin = 10s;
constexpr auto kRestartAfterForgotten = 15;  // seconds; later than that

}  // namespace

void Supervisor::requeue_self() {
  bool resizes = stop_ && stop_->gpus && *stop_->gpus != layout_.gpus();
  bool holds = stop_ && stop_->hold;
  std::string cause = stop_ ? stop_->reason : cause_;
  if (phase_ != Phase::handed_over)
    record(holds ? "HALTED" : resizes ? "RESIZING" : "QUEUED", cause);
  end_recorded_ = true;
  std::optional<Clock::time_point> granted;
  bool held = false;
  // However long slurmctld is away, ending without a requeue would end the job.
  for (auto pause = 1s;; std::this_thread::sleep_for(std::exchange(pause, 1s))) {
    auto job = slurm_.job(job_.id);
    if (!job && job.error().kind == ErrorKind::not_found) return lose_job(job.error().text);
    if (!job) continue;
    if (granted && job->state == SlurmState::pending) return move_on(*job, held);
    if (job->state == SlurmState::pending) return leave_pending(*job);  // somebody was faster
    if (job->state == SlurmState::cancelled) return finish(kOk);
    if (runs_anew(*job)) return;
    const bool over = job->state == SlurmState::timeout || job->state == SlurmState::preempted;
    if (job->finished() && !over) return act_on_job_end(*job);
    if (granted && Clock::now() - *granted > kRequeueShowsWithin)
      return lose_job(fmt::format("Slurm answers that job {} is requeued, but {} s later it is {}",
                                  job_.id, kRequeueShowsWithin.count(),
                                  slurm_state_name(job->state)));
    Status status = over    ? slurm_.requeue(job_.id)
                    : holds ? slurm_.requeue_held(job_.id)
                            : slurm_.requeue_running(job_.id);
    if (!status && status.error().kind != ErrorKind::unavailable)
      return lose_job(status.error().text);
    if (!status) continue;
    // slurmctld says so also when it has done nothing, since the job had just come to its end.
    if (!granted) pause = 0s;
    granted = granted.value_or(Clock::now());
    held = holds && !over;
  }
}

void Supervisor::lose_job(const std::string& why) {
  say(why + "; the job ends here");
  record("FAILED", why);
  finish(kFailed);
}

// `held`: it waits for its release, and needs nothing else.
void Supervisor::move_on(const SlurmJob& queued, bool held) {
  if (held) return finish(kOk);
  SlurmJobChange change;
  // By the clock after the requeue, which may have taken long: a time in the past would lose the
  // job.
  change.begin_time = queued.controller_now + kRestartAfterRequeue * later_;
  if (stop_) change.gpus = stop_->gpus;
  if (stop_ && stop_->hold) change.held = true;
  if (Status status = move_requeued(change); !status)
    say(status.error().text + "; the job restarts as it was");
  finish(kOk);
}

// Sets the size and start time of the requeued job.
Status Supervisor::move_requeued(SlurmJobChange change) {
  Status status;
  for (int tries = 0; tries < 20; ++tries, std::this_thread::sleep_for(250ms)) {
    status = slurm_.change(job_, change);
    if (status.ok() || status.error().kind != ErrorKind::unavailable) break;
    // What was 5 s ahead may be past by now, and would lose the job.
    auto job = slurm_.job(job_.id);
    if (job && change.begin_time)
      change.begin_time = job->controller_now + kRestartAfterRequeue * later_;
  }
  if (status.ok() || !change.gpus) return status;
  // Slurm may have taken some of the fields: back to the size that is known to work.
  change.gpus = layout_.gpus() > 0 ? std::optional(layout_.gpus()) : std::nullopt;
  if (!slurm_.change(job_, change))
    (void)slurm_.change(job_, {std::nullopt, change.begin_time}).ok();
  return status;
}

void Supervisor::leave_pending(const SlurmJob& job) {
  if (phase_ == Phase::forgotten) return;
  if (!forgotten(job)) {
    if (!end_recorded_) record("QUEUED", cause_of_requeue(job));
    ease_restart(job);
    return finish(kOk);
  }
  const std::string before = fault_pending_ ? cause_ + "; " : "";
  record("QUEUED", before + "slurmctld was restarted and had not saved that this run began");
  say("slurmctld was restarted and takes this run for one that never began; the job starts again");
  ease_restart(job);
  enter(Phase::forgotten, kForgottenRunIsClearedWithin);
}

std::string Supervisor::cause_of_requeue(const SlurmJob& job) const {
  if (!failure_.lost_node().empty()) return fmt::format("node {} was lost", failure_.lost_node());
  if (agents_ && !agents_->lost_node().empty()) return agents_->loss();
  if (job.preempt_time != 0) return "preemption";
  return stop_ ? stop_->reason : "requeued by Slurm or an operator";
}

// A requeue counts; a run of which slurmctld lost the record when it was killed does not. When the
// nodes register, about 3 s after its start, slurmctld ends what they still run of such a job. A
// node that by then runs nothing of it is never told to: its slurmd would refuse the next batch
// script as a second copy, and Slurm would drain the node and hold the job. So this run must last.
bool Supervisor::forgotten(const SlurmJob& job) const {
  return !job.completing && job.restarts <= job_.restarts;
}

// Whoever requeued the job may be gone before the size and a start time were set; without one Slurm
// makes the job wait for the life of a credential.
void Supervisor::ease_restart(const SlurmJob& job) {
  if (job.priority == 0) return;  // held: somebody wants it so
  SlurmJobChange change;
  if (job.start_time <= job.controller_now)
    change.begin_time =
        job.controller_now + (forgotten(job) ? kRestartAfterForgotten : kRestartAfterRequeue);
  // Another size than the old one is somebody's later wish.
  if (stop_ && stop_->gpus && job.requested_gpus() == layout_.gpus() &&
      *stop_->gpus != layout_.gpus())
    change.gpus = stop_->gpus;
  if (stop_ && stop_->hold) change.held = true;
  if (!change.begin_time && !change.gpus && !change.held) return;
  if (Status status = move_requeued(change); !status) say(status.error().text);
}

}  // namespace bellows
