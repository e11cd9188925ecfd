// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "elastic/daemon/cluster.h"
#include "elastic/daemon/job_book.h"
#include "elastic/optimizer/plan.h"
#include "elastic/policy/objective.h"
#include "jobsubmit/policy/guarantee.h"

namespace bellows {

/// Of a tenant, where the policy says something about it.
struct TenantTerms {
  Guarantee guarantee;
  std::uint32_t limit = UINT32_MAX;
  std::uint32_t weight = 1;
};

/// How a plan is to be made. A value.
struct PlanTerms {
  ObjectiveTerms objective;
  Surplus surplus = Surplus::by_weight;
  std::uint32_t dwell_s = 60;
  std::uint32_t restarts_per_hour = 6;
  std::uint32_t last_s = 300;
  std::uint32_t user_wins_s = 3600;
  std::map<std::string, TenantTerms> tenants;
};

/// One line of a plan: what a job has and is to have.
struct PlanLine {
  SlurmJob job;
  std::string tenant;
  std::uint32_t from = 0;         ///< held, or 0 for a job that waits
  std::uint32_t to = 0;           ///< 0: it goes on waiting
  std::string reason{};           ///< for a person
  std::uint64_t batch = 0;        ///< samples in a step from then on; 0: for the program to say
  bool starts_by_itself = false;  ///< it only needs room
  bool from_class = false;        ///< its size: only others of its class were seen there

  bool runs() const { return from > 0; }
  /// Whether something has to be done: a running job changes, or one that waits asks for another
  /// size than it is to have.
  bool moves() const;
  /// Whether it belongs to the plan, if there is one: it moves, or starts with what it asks for.
  bool takes_part() const;
};

/// What an elastic pool has and is to have. A value.
struct ServiceLine {
  std::uint32_t keeper = 0;  ///< its job
  std::string name;
  std::string tenant;
  std::uint32_t from = 0;     ///< GPUs that members hold which are to stay
  std::uint32_t leaving = 0;  ///< and those that others hold
  std::uint32_t to = 0;       ///< GPUs
  std::uint32_t members = 0;  ///< that it may have now, beside those that leave
};

struct PoolPlan {
  std::string partition;
  std::string gpu_type;
  std::set<std::string> nodes;  ///< on which something changes
  std::uint32_t gpus = 0;       ///< that elastic jobs may hold together
  std::uint32_t free =
      0;  ///< where something changes, that nobody holds, nor needs who starts by itself
  std::vector<PlanLine> lines;
  std::vector<ServiceLine> services{};
};

/// Divides a pool among its elastic jobs, so that each that changes finds its GPUs on as few nodes
/// as can be. One that may not be moved keeps what it has; one that
/// runs is never stopped, so its smallest size is its floor; free GPUs for which others wait are
/// not handed out, and those of jobs that have waited long enough are taken back.
///
/// Elastic pools take their part in the division: more members are worth what a job's speed is that
/// grows with its GPUs, up to as many as the pool wants, and the least it may have are its floor.
/// What its members hold is nobody else's to have until they are gone, and it may have no more now
/// than is free. Errors are those of plan_places.
Result<PoolPlan> plan_gpus(const Pool& pool, const std::map<std::uint32_t, JobNotes>& notes,
                           const PlanTerms& terms, std::time_t now,
                           JobBook::Clock::time_point time);

/// Why a running job may not be moved now; empty: it may.
std::string keeps_because(const SlurmJob& job, const JobNotes& notes, const PlanTerms& terms,
                          std::time_t now, JobBook::Clock::time_point time);

}  // namespace bellows
