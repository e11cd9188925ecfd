// SPDX-License-Identifier: Apache-2.0
#include "slurm/requeue.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "common/text.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

/// How each party goes about it.
struct Manner {
  std::chrono::seconds patience = 0s;       ///< with a slurmctld that does not answer; 0: forever
  std::chrono::seconds shows_within = 60s;  ///< from Slurm's word that it requeues until that shows
  std::chrono::milliseconds pause = 1s;
  int most_changes = 20;
  int start = requeue_clock::kWhileCompleting;  ///< of a job requeued, or found without a time
  int start_forgotten = requeue_clock::kAfterForgottenRun;
  int needs_ahead = 0;  ///< an earlier start time, set by another party, does not count
  int needs_ahead_forgotten = 0;
  /// How long the run must last if slurmctld has forgotten it; 0: the party does not run inside it.
  std::chrono::seconds outlast = 0s;
  bool revives = false;         ///< requeues also what Slurm has ended by a limit or a preemption
  bool awaits_revival = false;  ///< leaves that to the launcher, and waits for it
};

constexpr auto kChangePause = 250ms;
// slurmctld holds back the change of a job that lost a node until its last step is over, which the
// launcher's own life can prevent: what takes so long counts as several tries.
constexpr auto kSlowChange = 2s;
constexpr int kSlowCounts = 10;

// Its launcher may be killed just now. While the command lives it brings the start nearer, once the
// job has completed.
constexpr Manner kCommand{.patience = kCommandTries,
                          .shows_within = kCommandTries,
                          .pause = 500ms,
                          .most_changes = 32,
                          .start = requeue_clock::kAfterKilledLauncher,
                          .awaits_revival = true};
// Ending without a requeue would end the job, however long slurmctld is away.
constexpr Manner kLauncher{.outlast = std::chrono::seconds(requeue_clock::kForgottenRunClears),
                           .revives = true};
constexpr Manner kRescue{.patience = 120s,
                         .start = requeue_clock::kAfterKilledLauncher,
                         .start_forgotten = requeue_clock::kAfterForgottenDeadRun,
                         .needs_ahead = requeue_clock::kKilledStepsLinger,
                         // Its launcher, which would have lasted long enough, is dead.
                         .needs_ahead_forgotten = requeue_clock::kAfterForgottenDeadRun - 1,
                         .outlast = std::chrono::seconds(requeue_clock::kNodeRegisters)};

const Manner& manner_of(Party party) {
  switch (party) {
    case Party::command:
      return kCommand;
    case Party::launcher:
      return kLauncher;
    case Party::rescue:
      break;
  }
  return kRescue;
}

}  // namespace

std::chrono::seconds stock_requeue_delay(std::string_view auth_info) {
  // Slurm's default, its least, and the second that batch_requeue_fini() adds.
  constexpr std::uint64_t kUsual = 120;
  constexpr std::uint64_t kLeast = 5;
  constexpr std::uint64_t kMost = 86400;
  const auto said = parse_uint(value_in(auth_info, "cred_expire").value_or(""));
  return std::chrono::seconds(std::clamp(said.value_or(kUsual), kLeast, kMost) + 1);
}

QueuedJob queued_job(const SlurmJob& job) {
  return {job.state,       job.completing,  job.priority == 0, job.restarts, job.requested_gpus(),
          job.times.start, job.times.begin, job.times.now,     job.not_done};
}

std::time_t start_of_run(const SlurmJob& job) { return job.configuring ? 0 : job.times.start; }

bool run_was_forgotten(const QueuedJob& job, std::uint32_t restarts) {
  return job.state == SlurmState::pending && !job.completing && job.restarts <= restarts;
}

RequeueRoad::RequeueRoad(Party party, const NextRun& next, Clock::time_point now)
    : party_(party), next_(next), begun_(now) {}

void RequeueRoad::look_again(const std::string& trouble, Clock::time_point now) {
  const Manner& manner = manner_of(party_);
  if (manner.patience > 0s && now - begun_ >= manner.patience)
    return end(phase_ == Phase::requeueing ? RoadEnd::gave_up : RoadEnd::as_it_is, trouble);
  step_ = Pause{phase_ == Phase::requeueing ? manner.pause : kChangePause};
}

void RequeueRoad::looked(const Result<QueuedJob>& job, Clock::time_point now) {
  asked_ = now;
  if (!job && job.error().kind == ErrorKind::not_found) return end(RoadEnd::gone, job.error().text);
  if (!job) return look_again(job.error().text, now);
  if (phase_ != Phase::requeueing) {
    // What was ahead may be past by now, and would lose the job.
    if (change_.begin_time) change_.begin_time = job->now + delay();
    step_ = Change{change_};
    return;
  }
  if (is_newer_run(*job)) return end(RoadEnd::newer_run);
  if (job->state == SlurmState::pending) return found_waiting(*job, now);
  const bool runs = job->state == SlurmState::running || job->state == SlurmState::suspended ||
                    job->state == SlurmState::unknown;
  const bool may_return = job->state == SlurmState::timeout || job->state == SlurmState::preempted;
  const Manner& manner = manner_of(party_);
  if (runs || (may_return && manner.revives)) return found_running(*job, now);
  if (may_return && manner.awaits_revival && now - begun_ < manner.patience)
    step_ = Pause{manner.pause};
  else
    end(RoadEnd::ended, "", job->state);
}

void RequeueRoad::found_running(const QueuedJob& job, Clock::time_point now) {
  if (granted_ && now - *granted_ > manner_of(party_).shows_within)
    return end(RoadEnd::refused,
               fmt::format("Slurm said that it requeued the job, but {} s later the job is {}",
                           manner_of(party_).shows_within.count(), slurm_state_name(job.state)));
  const bool over = job.state == SlurmState::timeout || job.state == SlurmState::preempted;
  kind_ = over ? RequeueKind::any : next_.hold ? RequeueKind::held : RequeueKind::running;
  step_ = Requeue{kind_};
}

void RequeueRoad::requeued(const Status& answer, Clock::time_point now) {
  if (!answer && answer.error().kind != ErrorKind::unavailable)
    return end(RoadEnd::refused, answer.error().text);
  if (!answer) return look_again(answer.error().text, now);
  // slurmctld says so also when it has done nothing, since the job had just come to its end.
  if (std::exchange(granted_, granted_.value_or(now)))
    return look_again("Slurm did not requeue the job", now);
  step_ = Look{};
}

// A slurmctld that was killed may count two runs the same.
bool RequeueRoad::is_newer_run(const QueuedJob& job) const {
  if (!next_.restarts) return false;
  if (job.state == SlurmState::pending) return job.restarts > *next_.restarts + 1;
  return job.restarts > *next_.restarts || (next_.started != 0 && job.start > next_.started);
}

// A party that lives on a node keeps Slurm from being done with it, unless Slurm has set it down.
bool RequeueRoad::lost_its_node(const QueuedJob& job) const {
  return !next_.node.empty() &&
         std::find(job.not_done.begin(), job.not_done.end(), next_.node) == job.not_done.end();
}

// slurmctld, which the party hears, can start jobs on the party's node by now.
int RequeueRoad::after_lost_node() const {
  return lost_own_node_ ? requeue_clock::kAfterReturnedNode : requeue_clock::kAfterLostNode;
}

int RequeueRoad::delay() const {
  const Manner& manner = manner_of(party_);
  if (goal_ == RoadEnd::forgotten) return manner.start_forgotten;
  if (lost_node_) return std::max(manner.start, after_lost_node());
  return manner.start * static_cast<int>(goal_ == RoadEnd::moved ? next_.later : 1);
}

SlurmJobChange RequeueRoad::missing(const QueuedJob& job) const {
  SlurmJobChange change;
  // By the clock after the requeue, which may have taken long. Without a start time Slurm makes the
  // job wait for the life of a credential.
  const Manner& manner = manner_of(party_);
  const int ahead = goal_ == RoadEnd::forgotten ? manner.needs_ahead_forgotten
                    : lost_node_                ? after_lost_node() / 2
                                                : manner.needs_ahead;
  // Somebody who holds it sets the start time with its release.
  if (!job.held && (goal_ == RoadEnd::moved || job.begin <= job.now + ahead))
    change.begin_time = job.now + delay();
  // A job that lost a node asks for more than it had.
  const std::uint32_t before = job.asked_gpus == 0 ? next_.gpus_now : job.asked_gpus;
  const bool resizes = next_.gpus && *next_.gpus != before;
  // Another size than the old one is somebody's later wish. Where the old one is not known, a start
  // time that is ahead tells: it was set together with a size.
  const bool untouched = next_.gpus_now == 0 ? job.begin <= job.now : before == next_.gpus_now;
  if (resizes && (untouched || goal_ == RoadEnd::moved)) change.gpus = next_.gpus;
  if (next_.hold && !job.held) change.held = true;
  if (!next_.reservation.empty()) change.reservation = next_.reservation;
  return change;
}

void RequeueRoad::found_waiting(const QueuedJob& job, Clock::time_point now) {
  const bool forgotten = next_.restarts && run_was_forgotten(job, *next_.restarts);
  goal_ = granted_ ? RoadEnd::moved : forgotten ? RoadEnd::forgotten : RoadEnd::found;
  lost_own_node_ = goal_ == RoadEnd::found && lost_its_node(job);
  lost_node_ = lost_own_node_ || (goal_ == RoadEnd::found && next_.lost_node);
  change_ = missing(job);
  if (!change_.begin_time && !change_.gpus && !change_.held && !change_.reservation)
    return end(goal_);
  phase_ = Phase::changing;
  begun_ = now;
  step_ = Change{change_};
}

void RequeueRoad::changed(const Status& answer, Clock::time_point now) {
  if (answer.ok()) return refusal_.empty() ? end(goal_) : end(RoadEnd::kept_size, refusal_);
  const Manner& manner = manner_of(party_);
  changes_ += now - asked_ >= kSlowChange ? kSlowCounts : 1;
  const bool again = answer.error().kind == ErrorKind::unavailable &&
                     changes_ < manner.most_changes &&
                     (manner.patience == 0s || now - begun_ < manner.patience);
  if (again) {
    step_ = Pause{kChangePause};
    return;
  }
  if (refusal_.empty()) refusal_ = answer.error().text;
  changes_ = 0;
  if (phase_ == Phase::changing && change_.gpus && next_.gpus_now > 0) {
    // Slurm may have taken some of the fields: back to the size that is known to work.
    phase_ = Phase::back_to_old_size;
    change_.gpus = next_.gpus_now;
  } else if (phase_ != Phase::start_only && change_.gpus && change_.begin_time) {
    phase_ = Phase::start_only;
    change_ = SlurmJobChange{.gpus = std::nullopt, .begin_time = change_.begin_time};
  } else {
    return end(RoadEnd::as_it_is, refusal_);
  }
  step_ = Change{change_};
}

void RequeueRoad::end(RoadEnd how, std::string text, SlurmState state) {
  const bool forgotten = goal_ == RoadEnd::forgotten;
  step_ = Done{how, std::move(text), state, forgotten ? manner_of(party_).outlast : 0s};
}

RoadTime RoadTime::real() {
  return {[] { return RequeueRoad::Clock::now(); },
          [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }};
}

namespace {

/// Carries out one step after the other.
class Walk {
 public:
  Walk(RequeueRoad& road, Slurm& slurm, const SlurmJob& job, const RoadTime& time)
      : road_(road), slurm_(slurm), job_(job), time_(time) {}

  void operator()(const RequeueRoad::Look&) {
    const auto job = slurm_.job(job_.id);
    road_.looked(job ? Result<QueuedJob>(queued_job(*job)) : Result<QueuedJob>(job.error()),
                 time_.now());
  }
  void operator()(const RequeueRoad::Requeue& step) {
    const Status status = step.kind == RequeueKind::any    ? slurm_.requeue(job_.id)
                          : step.kind == RequeueKind::held ? slurm_.requeue_held(job_.id)
                                                           : slurm_.requeue_running(job_.id);
    road_.requeued(status, time_.now());
  }
  void operator()(const RequeueRoad::Change& step) {
    const SlurmJobChange change = step.change;
    const Status status = slurm_.change(job_, change);
    road_.changed(status, time_.now());
  }
  void operator()(const RequeueRoad::Pause& step) {
    time_.sleep(step.time);
    road_.paused();
  }
  void operator()(const RequeueRoad::Done&) {}

 private:
  RequeueRoad& road_;
  Slurm& slurm_;
  const SlurmJob& job_;
  const RoadTime& time_;
};

}  // namespace

RequeueRoad::Done walk(RequeueRoad road, Slurm& slurm, const SlurmJob& job, const RoadTime& time) {
  Walk walk(road, slurm, job, time);
  while (true) {
    const RequeueRoad::Step step = road.next();
    if (const auto* done = std::get_if<RequeueRoad::Done>(&step)) return *done;
    std::visit(walk, step);
  }
}

}  // namespace bellows
