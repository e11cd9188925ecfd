// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"
#include "slurm/interface.h"
#include "slurm/releases.h"

namespace bellows {

/// The one road by which a job goes back into Slurm's queue: requeue it, set its next size and
/// start time in one update, and leave it to Slurm to start it. DESIGN.md explains the hazards.
///
/// Three parties may walk it. A command from outside the job is the fastest, since it does not end
/// with the job. The launcher does it when nobody else wants to or when that command is gone. The
/// SPANK plugin does it at the end of a batch script whose launcher was killed. Whoever finds that
/// another was faster only adds what is missing.
enum class Party { command, launcher, rescue };

/// Seconds of slurmctld's clock, measured on 22.05, kSoon on 26.05, too; 24.11 was run with them.
namespace requeue_clock {
/// A start in the second in which the last run's credential was revoked loses the job; with 1 it
/// could fall into that one. Where a run has an id of its own, its credential is its own, too: of
/// 100 jobs that started at once none was lost.
inline constexpr int kSoon = kRunsHaveIds ? 0 : 2;
/// A time that is set while the job completes survives only if it is still ahead when the last
/// node is done. Steps that end at their stop are done within this.
inline constexpr int kWhileCompleting = 5;
/// The steps of a launcher that was killed try for 5 to 7 s to reach it, and the job completes
/// until then.
inline constexpr int kKilledStepsLinger = 7;
inline constexpr int kAfterKilledLauncher = 10;
/// A node that was set down does not keep the job from starting again, but may only have been slow
/// or cut off. When it returns, slurmd ends what it has of the job; a start on it before that is
/// refused as a duplicate: Slurm then drains the node and holds the job. It takes until the
/// launcher there and its steps are done: 10 s, and 60 s more for a step that could not tell
/// slurmctld that it had ended, since slurmstepd tries only each minute.
inline constexpr int kAfterLostNode = 20;
inline constexpr int kAfterReturnedNode = 75;
/// slurmctld lost the record of a run that still exists. Within 6 s of its start it makes every
/// node register and ends what they still run of the job; the launcher of that run waits for 10.
inline constexpr int kForgottenRunClears = 10;
inline constexpr int kAfterForgottenRun = 15;
/// The same, when the launcher is dead too: a node looks only every second, and later every ten,
/// whether what it ends is over.
inline constexpr int kNodeRegisters = 6;
inline constexpr int kAfterForgottenDeadRun = 20;
}  // namespace requeue_clock

/// The rule of the hand-over: after the commit, the launcher waits this long for a command to
/// requeue the job, and then does it itself. The command gives up before that.
inline constexpr std::chrono::seconds kHandOver{10};
inline constexpr std::chrono::seconds kCommandTries{8};

/// How long Slurm lets a job wait after a requeue, from the moment at which its last node is done,
/// unless a start time is set that is still ahead then. `auth_info`: AuthInfo of slurm.conf, which
/// sets the life of a credential.
std::chrono::seconds stock_requeue_delay(std::string_view auth_info);

/// What the road needs of slurmctld's answer about a job.
struct QueuedJob {
  SlurmState state = SlurmState::unknown;
  bool completing = false;
  bool held = false;
  std::uint32_t restarts = 0;
  std::uint32_t asked_gpus = 0;         ///< 0: not known
  std::time_t start = 0;                ///< running: when the run began
  std::time_t begin = 0;                ///< pending: it is not started before
  std::time_t now = 0;                  ///< slurmctld's clock
  std::vector<std::string> not_done{};  ///< completing: nodes for which slurmctld waits
};
QueuedJob queued_job(const SlurmJob& job);

/// When the run of a job began, for NextRun: 0, not known, while its nodes boot, since Slurm sets
/// it again when they are up.
std::time_t start_of_run(const SlurmJob& job);

/// Whether slurmctld takes a run for one that never began: it was killed before it had saved that.
/// A requeue counts, which this does not. `restarts`: of the run.
bool run_was_forgotten(const QueuedJob& job, std::uint32_t restarts);

/// Slurm's way to requeue: only a job that runs, the same but to be held, or in whatever state.
enum class RequeueKind { running, held, any };

/// What the job is to be after this road.
struct NextRun {
  std::optional<std::uint32_t> restarts;  ///< of the run that ends; nothing: not known
  std::time_t started = 0;                ///< that run, 0: not known
  std::uint32_t gpus_now = 0;             ///< 0: not known
  std::optional<std::uint32_t> gpus{};    ///< nothing: as before
  bool hold = false;
  std::string reservation{};  ///< to run in; empty: as before
  std::uint32_t later = 1;    ///< factor on the usual delay of its start
  std::string node{};         ///< of the run, on which this party is; empty: outside of it
  bool lost_node = false;     ///< a node of the run is known to be lost
};

/// How the road ended.
enum class RoadEnd {
  moved,      ///< this party requeued it, and its next run is as wanted
  found,      ///< another had requeued it, and its next run has a start time
  kept_size,  ///< it is requeued, but Slurm refused the new size: `text` says why
  as_it_is,   ///< it is requeued, but no change is taken: it starts when Slurm sees fit; `text`
  forgotten,  ///< slurmctld takes this run for one that never began; it starts again
  newer_run,  ///< slurmctld is at a later run
  ended,      ///< it is over: `state`
  gone,       ///< slurmctld does not know it
  refused,    ///< Slurm does not requeue it: `text`
  gave_up     ///< the time is over; the next party is to do it
};

/// The road as a pure machine: next() says what to do, and the call named there takes the answer.
class RequeueRoad {
 public:
  using Clock = std::chrono::steady_clock;

  struct Look {};  ///< read the job; then looked()
  struct Requeue {
    RequeueKind kind;
  };  ///< then requeued()
  struct Change {
    SlurmJobChange change;
  };  ///< in one update; then changed()
  struct Pause {
    std::chrono::milliseconds time;
  };  ///< then paused()
  struct Done {
    RoadEnd end;
    std::string text{};
    SlurmState state = SlurmState::unknown;
    /// How long a run that slurmctld has forgotten must last, whatever became of the change; 0: it
    /// may end now.
    std::chrono::seconds outlast{0};
  };
  using Step = std::variant<Look, Requeue, Change, Pause, Done>;

  RequeueRoad(Party party, const NextRun& next, Clock::time_point now);

  const Step& next() const { return step_; }
  void looked(const Result<QueuedJob>& job, Clock::time_point now);
  void requeued(const Status& answer, Clock::time_point now);
  void changed(const Status& answer, Clock::time_point now);
  void paused() { step_ = Look{}; }

 private:
  enum class Phase { requeueing, changing, back_to_old_size, start_only };

  void look_again(const std::string& trouble, Clock::time_point now);
  void found_waiting(const QueuedJob& job, Clock::time_point now);
  void found_running(const QueuedJob& job, Clock::time_point now);
  bool is_newer_run(const QueuedJob& job) const;
  /// Whether Slurm has given up the node on which the party is.
  bool lost_its_node(const QueuedJob& job) const;
  int after_lost_node() const;
  SlurmJobChange missing(const QueuedJob& job) const;
  int delay() const;
  void end(RoadEnd how, std::string text = {}, SlurmState state = SlurmState::unknown);

  Party party_;
  NextRun next_;
  Clock::time_point begun_;
  Step step_ = Look{};
  Phase phase_ = Phase::requeueing;
  RoadEnd goal_ = RoadEnd::moved;             ///< what it is once the change is made
  bool lost_node_ = false;                    ///< another requeued the job since it lost a node
  bool lost_own_node_ = false;                ///< that was the party's
  std::optional<Clock::time_point> granted_;  ///< when Slurm said that it requeues the job
  RequeueKind kind_ = RequeueKind::running;
  SlurmJobChange change_;
  int changes_ = 0;
  Clock::time_point asked_{};  ///< when the job was last looked at
  std::string refusal_;
};

/// Time as the walker has it; tests have their own.
struct RoadTime {
  std::function<RequeueRoad::Clock::time_point()> now;
  std::function<void(std::chrono::milliseconds)> sleep;
  static RoadTime real();
};

/// Walks the whole road through the interface. Blocks as long as the party may wait: a
/// launcher, for as long as slurmctld does not answer.
RequeueRoad::Done walk(RequeueRoad road, Slurm& slurm, const SlurmJob& job,
                       const RoadTime& time = RoadTime::real());

}  // namespace bellows
