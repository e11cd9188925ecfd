// SPDX-License-Identifier: Apache-2.0
// What Slurm says about the job, and the way back into its queue.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/machine/moves.h"
#include "slurm/requeue.h"

namespace bellows {
namespace {

using state::Next;

State take_road(Run& run) {
  NextRun next{
      .restarts = run.job.restarts, .started = run.job.times.start, .gpus_now = run.layout.gpus()};
  if (run.stop) next.gpus = run.stop->size_alone(run.layout.gpus());
  next.hold = run.stop && run.stop->hold;
  next.later = run.doubts.later;
  next.node = run.job.batch_host;
  next.lost_node = !run.failure.lost_node().empty() || !run.agents.lost_node.empty();
  run.act(action::WalkRoad{next});
  return state::Requeueing{};
}

std::string cause_of_requeue(const Run& run, const SlurmJob& job) {
  if (!run.failure.lost_node().empty())
    return fmt::format("node {} was lost", run.failure.lost_node());
  if (!run.agents.lost_node.empty()) return run.agents.loss;
  if (job.times.preempt != 0) return "preemption";
  return run.stop ? run.stop->reason : "requeued by Slurm or an operator";
}

// Somebody else has requeued the job, who may be gone before its next size and start time were set.
State leave_pending(Run& run, const SlurmJob& job) {
  if (!run.doubts.end_recorded && !run_was_forgotten(queued_job(job), run.job.restarts))
    run.record("QUEUED", cause_of_requeue(run, job));
  return take_road(run);
}

void want_stop(Run& run, const char* reason) {
  if (!run.stop) run.stop = Stop{.reason = reason};
}

State job_over(Run& run, const SlurmJob& job) {
  switch (job.state) {
    case SlurmState::pending:
      return leave_pending(run, job);
    case SlurmState::cancelled:
      run.record("CANCELLED", "scancel");
      return finish(run, kFailed);
    case SlurmState::timeout:
      // A run without progress would make none in the next try either.
      if (!run.progress.committed && !run.progress.own_saved) break;
      want_stop(run, "time limit");
      return requeue(run);
    case SlurmState::preempted:
      want_stop(run, "preemption");
      return requeue(run);
    default:
      break;
  }
  run.record("FAILED", fmt::format("Slurm: {}", slurm_state_name(job.state)));
  return finish(run, kFailed);
}

// sbatch --no-kill: a lost node leaves a smaller job. True: the job may continue at that size.
bool take_layout_of(Run& run, const SlurmJob& job) {
  if (job.nodes == run.job.nodes) return true;
  auto layout = run.layout.again(job);
  if (!layout) return false;
  std::vector<NodeShare> lost;
  std::vector<std::string> names;
  for (const NodeShare& share : run.job.nodes)
    if (std::none_of(job.nodes.begin(), job.nodes.end(),
                     [&](const NodeShare& left) { return left.node == share.node; })) {
      lost.push_back(share);
      names.push_back(share.node);
    }
  std::size_t& shrunk_from = run.attempt.shrunk_from;
  if (!lost.empty()) run.cause = fmt::format("node {} was lost", fmt::join(names, ","));
  if (!lost.empty()) shrunk_from = std::max(shrunk_from, run.layout.nodes().size());
  run.nodes.note_lost(lost, run.now);
  const auto& contract = run.rules.contract;
  if (contract && layout->gpus() != 0 && !contract->gpus.contains(layout->gpus())) {
    run.say(fmt::format("the job may not run on the {} that its nodes have left",
                        counted(layout->gpus(), "GPU")));
    return false;
  }
  run.say(fmt::format("the job continues with {} of {} on {}", layout->gpus(),
                      counted(run.layout.gpus(), "GPU"), fmt::join(layout->nodes(), ",")));
  run.job = job;
  run.layout = std::move(*layout);
  run.agents.well = false;
  return true;
}

Next out_of_budget(Run& run) {
  if (run.fault.blame == Blame::cluster) {
    run.stop = Stop{.reason = run.cause};
    run.doubts.out_of_tries = true;
    return Next::stop;
  }
  if (!run.fault.hopeless && run.budget.failures() > 1)
    run.cause += fmt::format("; {} failures in a row without progress", run.budget.failures());
  if (!run.failure.last_words().empty())
    run.cause += fmt::format("; its last output: {}", run.failure.last_words());
  return Next::fail;
}

/// Slurm knows of nothing that would explain the fault: it is one.
State act_on_fault(Run& run, const SlurmJob& job) {
  run.fault.pending = false;
  const bool same = job.nodes == run.job.nodes;
  if (!take_layout_of(run, job)) want_stop(run, run.cause.c_str());
  if (!same) run.fault.blame = Blame::cluster;
  Next next = Next::restart;
  if (run.stop)
    next = Next::stop;
  else if (run.fault.hopeless ||
           !run.budget.spend(run.fault.blame, run.progress.newest_commit, run.progress.newest_step))
    next = out_of_budget(run);
  if (!run.ranks.there && run.agents.there && !run.attempt.joined.empty()) return drain(run, next);
  return clear(run, next, run.cause);
}

// When the nodes register, about 3 s after its start, slurmctld ends what they still run of such a
// job. A node that by then runs nothing of it is never told to: its slurmd would refuse the next
// batch script as a second copy, and Slurm would drain the node and hold the job. So this run must
// last.
State outlast_forgotten_run(Run& run, std::chrono::seconds time) {
  const std::string before = run.fault.pending ? run.cause + "; " : "";
  run.record("QUEUED", before + "slurmctld was restarted and had not saved that this run began");
  run.say("slurmctld was restarted and believes that this run never began; the job starts again");
  return state::Forgotten{run.now + time};
}

State lose_job(Run& run, const std::string& why) {
  run.say(why + "; the job ends here");
  run.record("FAILED", why);
  return finish(run, kFailed);
}

}  // namespace

Move job_known(Run& run, State& state, const SlurmJob& job) {
  if (auto later = give_way_to_later_run(run, job)) return later;
  // Then only the time limit ends this run, or who cancels the job.
  if (std::holds_alternative<state::Forgotten>(state) && job.state != SlurmState::cancelled)
    return std::nullopt;
  const bool suspended = job.state == SlurmState::suspended;
  if (job.state != SlurmState::running && !suspended) return job_over(run, job);
  const bool preempted = job.times.preempt != 0;
  const bool term = std::exchange(run.doubts.term_came, false);
  const char* const reason = preempted ? "preemption" : "signal TERM";
  if (!run.fault.pending)
    return term || preempted ? request_stop(run, state, Stop{.reason = reason}) : Move();
  // The ranks may have died of the signal that announces it.
  if (term || preempted) want_stop(run, reason);
  if (!suspended) return act_on_fault(run, job);
  // Nothing can be started in a suspended job, and ranks that did not advance were not hung.
  if (run.fault.hang)
    run.drop_hang("the job is suspended");
  else
    run.doubts.ask_job = true;
  return std::nullopt;
}

State requeue(Run& run) {
  const bool resizes = run.stop && run.stop->gpus && *run.stop->gpus != run.layout.gpus();
  const bool holds = run.stop && run.stop->hold;
  const bool fruitless = run.stop && run.stop->fruitless;
  if (!run.doubts.end_recorded)
    run.record(holds     ? "HALTED"
               : resizes ? "RESIZING"
                         : "QUEUED",
               run.stop ? run.stop->reason : run.cause,
               fruitless ? EventNote::fruitless : EventNote::none);
  run.doubts.end_recorded = true;
  return take_road(run);
}

State road_walked(Run& run, const RequeueRoad::Done& done) {
  switch (done.end) {
    case RoadEnd::kept_size:
    case RoadEnd::as_it_is:
      run.say(done.text + "; the job restarts at its old size");
      break;
    case RoadEnd::newer_run:
      run.say(fmt::format(
          "Slurm is at a later run of the job than this one, {}: leaving the job to that run",
          run.job.restarts));
      break;
    case RoadEnd::ended:
      if (done.state == SlurmState::cancelled) break;
      run.record("FAILED", fmt::format("Slurm: {}", slurm_state_name(done.state)));
      return finish(run, kFailed);
    case RoadEnd::gone:
    case RoadEnd::refused:
    case RoadEnd::gave_up:
      return lose_job(run, done.text);
    case RoadEnd::moved:
    case RoadEnd::found:
    case RoadEnd::forgotten:
      break;
  }
  if (done.outlast > std::chrono::seconds(0)) return outlast_forgotten_run(run, done.outlast);
  return finish(run, kOk);
}

// A node may be cut off from slurmctld but not from the file system: nobody else would tell this
// run that there is a later one, and a program that saves by itself would write over its
// checkpoints.
Move watch_owner(Run& run, const std::string& owner) {
  const auto other = RunName::of_attempt(owner);
  if (!other) return std::nullopt;
  if (*other == run.rules.run) {
    run.owner.ours = true;
    return std::nullopt;
  }
  if (!run.owner.ours && owner == run.owner.before.attempt) return std::nullopt;
  const std::string cause = fmt::format(
      "attempt {} owns the checkpoint directory now, and this is {}: leaving it to that attempt",
      owner, run.attempt_name());
  run.say(cause);
  if (run.stop) run.refuse(run.stop->client, cause);
  run.fault.pending = false;
  // A later run of this job has all that was committed; another job has none of this one's work.
  run.fault.exit_code = other->job == run.job.id ? kOk : kRefused;
  // srun signals them through the slurmd of each node, which may not answer on a node that is cut
  // off.
  run.act(action::KillRanksHere{run.attempt_name()});
  return clear(run, Next::leave, cause);
}

}  // namespace bellows
