// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "elastic/daemon/job_book.h"
#include "elastic/daemon/planner.h"
#include "slurm/interface.h"
#include "slurm/places.h"
#include "slurm/requeue.h"

namespace bellows {

/// Names of the users of jobs, for a reservation.
class UserNames {
 public:
  virtual ~UserNames() = default;
  /// Empty: the user has no name here.
  virtual std::string name_of(uid_t uid) = 0;
};

/// How far a job of a plan has come.
enum class MemberState {
  ordered,    ///< its launcher is to stop it at a checkpoint
  committed,  ///< it has; the job waits for its requeue
  requeueing,
  waiting,  ///< in Slurm's queue, with its new size
  running,  ///< at the end of the plan
  out       ///< it keeps what it had: `why`
};
const char* to_string(MemberState state);

/// One plan carried out: all of its jobs stop at a checkpoint together, go back into the queue with
/// their next sizes and start together, while a reservation keeps other jobs from stepping between.
///
/// Whoever dies leaves nothing held and nobody stopped: from the order on each launcher finishes
/// its own move alone, SPANK's rescue finishes that of a launcher that dies, the reservation ends
/// by itself and lets go of its jobs.
class Transaction {
 public:
  using Clock = std::chrono::steady_clock;

  struct Member {
    PlanLine line;
    MemberState state = MemberState::ordered;
    std::string order;
    std::string why{};
    std::optional<RequeueRoad> road{};
    Clock::time_point again{};  ///< when it is looked at, or its road goes on
    std::uint32_t asked = 0;    ///< GPUs, before the plan
    bool fell_back = false;     ///< to what it had asked for, since Slurm did not start it
    /// Its start was brought forward, or must not be: it leaves time for what is left of a run that
    /// another requeued, or that slurmctld forgot.
    bool start_stands = false;
  };

  /// How long the parts of a plan may last.
  struct Limits {
    std::chrono::seconds commit{30};  ///< for launchers to stop their jobs
    /// And from the first commit to the last: a launcher waits for its requeue no longer than
    /// kHandOver, and then goes on alone.
    std::chrono::seconds together{kHandOver - std::chrono::seconds(3)};
    std::chrono::seconds start{60};  ///< for jobs to start, from the last requeue
    /// Of the reservation, which is extended while the plan lasts: if bellowsd dies, the jobs that
    /// their launchers requeue cannot start before it ends.
    std::chrono::seconds hold{15};
    std::chrono::seconds clear{60};  ///< for the reservation to be deleted
  };

  /// `name`: of the plan, in letters and digits that nobody can guess. All references outlive it.
  Transaction(std::string name, const PoolPlan& plan, std::uint32_t free, Slurm& slurm,
              SlurmPlaces& places, JobBook& book, UserNames& users, Limits limits);

  /// Does what can be done now; to be called every few hundred milliseconds until it is done.
  /// `slurm_now`: by slurmctld's clock, as it was last seen.
  void advance(Clock::time_point now, std::time_t slurm_now);
  bool done() const { return phase_ == Phase::done; }

  const std::string& name() const { return name_; }
  const std::vector<Member>& members() const { return members_; }
  /// Why it came to nothing, or what did not go as planned; empty: all went well.
  const std::string& trouble() const { return trouble_; }
  /// From the first order until all sizes ran; nothing before.
  std::optional<std::chrono::duration<double>> took() const { return took_; }

 private:
  enum class Phase { reserving, stopping, moving, starting, clearing, done };

  void reserve(std::time_t slurm_now);
  Status make_reservation(std::time_t slurm_now);
  void keep_reservation(std::time_t slurm_now);
  void give_orders();
  void await_answers(Clock::time_point now);
  bool too_late(Clock::time_point now) const;
  bool is_gone(Member& member, Clock::time_point now);
  void drop_what_does_not_fit();
  void begin_moving(Clock::time_point now);
  void move(Clock::time_point now, std::time_t slurm_now);
  void step_road(Member& member, Clock::time_point now);
  void road_done(Member& member, const RequeueRoad::Done& done, Clock::time_point now);
  void change_waiting(Member& member, Clock::time_point now);
  void await_starts(Clock::time_point now);
  bool fall_back(Member& member, Clock::time_point now);
  bool look_at(Member& member);
  void bring_forward(Member& member, Clock::time_point now);
  void clear(Clock::time_point now);
  void leave_out(Member& member, std::string why);
  void fail(Member& member, std::string why, Clock::time_point now);
  std::string reservation() const;

  const std::string name_;
  const std::vector<std::string> nodes_;
  std::uint32_t free_;  ///< GPUs that no job holds when the plan begins
  Slurm& slurm_;
  SlurmPlaces& places_;
  JobBook& book_;
  UserNames& users_;
  const Limits limits_;
  std::vector<Member> members_;
  Phase phase_ = Phase::reserving;
  std::string trouble_;
  Clock::time_point begun_{};
  Clock::time_point phase_begun_{};
  std::optional<Clock::time_point> first_commit_;
  std::time_t hold_until_ = 0;
  std::optional<std::chrono::duration<double>> took_;
};

/// What a bellowsd that died has left: takes its reservations from their jobs and deletes them.
Status clear_reservations(Slurm& slurm, SlurmPlaces& places);

}  // namespace bellows
