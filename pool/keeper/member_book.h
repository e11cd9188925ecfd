// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "slurm/job.h"

namespace bellows::pool {

using Clock = std::chrono::steady_clock;

/// In the order of MemberState in pool.proto.
enum class Phase { pending, starting, ready, draining, ended };

/// A figure, and how old it was when it was reported.
struct ReportedMetric {
  double value = 0;
  std::chrono::milliseconds age{0};
};

/// What the agent of a member says of it. A value.
struct MemberReport {
  std::uint32_t job = 0;
  std::uint64_t incarnation = 0;
  std::string address;
  std::string node;
  bool ready = false;
  bool draining = false;
  std::map<std::string, ReportedMetric> metrics;
  std::int32_t vote = 0;
  std::uint32_t vote_sequence = 0;
  std::chrono::milliseconds vote_age{0};
  std::uint64_t ready_ms = 0;  ///< since 1970, when it was ready first; 0: not yet
};

/// A member as its keeper knows it.
struct MemberEntry {
  std::uint32_t job = 0;
  Phase phase = Phase::pending;
  Clock::time_point submitted;
  Clock::time_point phase_since;
  std::optional<Clock::time_point> ready_at;  ///< the first time
  std::optional<MemberReport> report;         ///< the newest
  Clock::time_point reported;
  bool attended = false;              ///< its agent's connection stands
  bool listed = false;                ///< Slurm has been seen to have the job
  std::optional<std::string> reason;  ///< why Slurm has it wait
  std::time_t slurm_submit = 0;       ///< by slurmctld's clock
  std::time_t slurm_now = 0;          ///< by the same, when it was last listed
  std::optional<Clock::time_point> drain_by{};
  std::optional<Clock::time_point> cancelled{};  ///< when Slurm was last asked to end it
  bool adopted = false;                          ///< a keeper before this one submitted it
  bool unasked = false;  ///< adopted, not there when this keeper began, and not ready so far
};

/// The members of a pool. Slurm says which there are, their agents say how they are. A value.
class MemberBook {
 public:
  /// How long a member's agent may be away before callers are told to leave it alone.
  static constexpr std::chrono::seconds kAway{3};
  /// How long a member that has worked may be silent before it is replaced.
  static constexpr std::chrono::seconds kLost{60};
  /// How many members may end before they were ready until the keeper pauses.
  static constexpr std::uint32_t kFruitless = 3;
  static constexpr std::chrono::seconds kLongestPause{300};
  /// How long Slurm may not know of a job that it has taken.
  static constexpr std::chrono::seconds kUnlisted{10};

  void submitted(std::uint32_t job, Clock::time_point now);
  /// False: there is no such member, as far as is known; Slurm decides who is one, not who says so.
  bool reported(const MemberReport& report, Clock::time_point now);
  /// The connection of this incarnation's agent is gone.
  void left(std::uint32_t job, std::uint64_t incarnation);
  /// All jobs of the pool that Slurm knows, also those of a keeper before this one.
  void listed(const std::vector<SlurmJob>& jobs, Clock::time_point now);
  /// What follows from time alone. Nobody is held to be lost by silence before `hears_since`: the
  /// keeper itself was cut off then.
  void tick(Clock::time_point now, Clock::time_point hears_since);

  /// From now on it gets no calls, and has to be done by then.
  void drain(std::uint32_t job, Clock::time_point by, Clock::time_point now);
  void cancelled(std::uint32_t job, Clock::time_point now);

  const std::map<std::uint32_t, MemberEntry>& members() const { return members_; }
  /// Those that are to stay, in any of these states.
  std::uint32_t count(Phase phase) const;
  std::uint32_t staying() const;
  /// Grows with each change that callers should know of.
  std::uint64_t version() const { return version_; }
  /// When the next member may be submitted: later and later while members end before they were
  /// ready, one after another.
  Clock::time_point may_submit_at() const { return may_submit_at_; }
  /// How many have, one after another.
  std::uint32_t fruitless() const { return fruitless_; }
  /// Seconds from submission to readiness of members that became ready, once each.
  std::vector<double> take_start_times();

 private:
  void enter(MemberEntry& member, Phase phase, Clock::time_point now);
  void pause_after_fruitless(Clock::time_point now);
  void end_unlisted(const std::vector<SlurmJob>& jobs, Clock::time_point now);
  void take_job(const SlurmJob& job, Clock::time_point now);

  std::map<std::uint32_t, MemberEntry> members_;
  bool is_listed_ = false;  ///< at least once
  std::vector<double> start_times_;
  std::uint32_t fruitless_ = 0;
  Clock::time_point may_submit_at_;
  std::uint64_t version_ = 1;
};

}  // namespace bellows::pool
