// SPDX-License-Identifier: Apache-2.0
// Supervisor's way back into Slurm's queue.
#include <fmt/core.h>

#include "launcher/base/exit_status.h"
#include "launcher/run/supervisor.h"
#include "slurm/requeue.h"

namespace bellows {
void Supervisor::requeue_self() {
  const bool resizes = stop_ && stop_->gpus && *stop_->gpus != layout_.gpus();
  const bool holds = stop_ && stop_->hold;
  const std::string cause = stop_ ? stop_->reason : cause_;
  if (phase_ != Phase::handed_over)
    record(holds     ? "HALTED"
           : resizes ? "RESIZING"
                     : "QUEUED",
           cause, stop_ && stop_->fruitless ? EventNote::fruitless : EventNote::none);
  end_recorded_ = true;
  take_road();
}

// Also when somebody else has requeued the job, who may be gone before its next size and start time
// were set.
void Supervisor::take_road() {
  NextRun next{.restarts = job_.restarts, .started = job_.start_time, .gpus_now = layout_.gpus()};
  if (stop_) next.gpus = stop_->gpus;
  next.hold = stop_ && stop_->hold;
  next.later = later_;
  const auto done = walk(RequeueRoad(Party::launcher, next, Clock::now()), slurm_, job_);
  switch (done.end) {
    case RoadEnd::kept_size:
    case RoadEnd::as_it_is:
      say(done.text + "; the job restarts as it was");
      return finish(kOk);
    case RoadEnd::forgotten:
      return outlast_forgotten_run();
    case RoadEnd::newer_run:
      say(fmt::format("Slurm is at a later run of the job than this one, {}: leaving it to that",
                      job_.restarts));
      return finish(kOk);
    case RoadEnd::ended:
      if (done.state == SlurmState::cancelled) return finish(kOk);
      record("FAILED", fmt::format("Slurm: {}", slurm_state_name(done.state)));
      return finish(kFailed);
    case RoadEnd::gone:
    case RoadEnd::refused:
    case RoadEnd::gave_up:
      return lose_job(done.text);
    case RoadEnd::moved:
    case RoadEnd::found:
      return finish(kOk);
  }
}

void Supervisor::lose_job(const std::string& why) {
  say(why + "; the job ends here");
  record("FAILED", why);
  finish(kFailed);
}

void Supervisor::leave_pending(const SlurmJob& job) {
  if (phase_ == Phase::forgotten) return;
  if (!end_recorded_ && !run_was_forgotten(queued_job(job), job_.restarts))
    record("QUEUED", cause_of_requeue(job));
  take_road();
}

// When the nodes register, about 3 s after its start, slurmctld ends what they still run of such a
// job. A node that by then runs nothing of it is never told to: its slurmd would refuse the next
// batch script as a second copy, and Slurm would drain the node and hold the job. So this run must
// last.
void Supervisor::outlast_forgotten_run() {
  const std::string before = fault_pending_ ? cause_ + "; " : "";
  record("QUEUED", before + "slurmctld was restarted and had not saved that this run began");
  say("slurmctld was restarted and takes this run for one that never began; the job starts again");
  enter(Phase::forgotten, std::chrono::seconds(requeue_clock::kForgottenRunClears));
}

std::string Supervisor::cause_of_requeue(const SlurmJob& job) const {
  if (!failure_.lost_node().empty()) return fmt::format("node {} was lost", failure_.lost_node());
  if (agents_ && !agents_->lost_node().empty()) return agents_->loss();
  if (job.preempt_time != 0) return "preemption";
  return stop_ ? stop_->reason : "requeued by Slurm or an operator";
}

}  // namespace bellows
