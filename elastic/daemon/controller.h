// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastic/daemon/job_book.h"
#include "elastic/daemon/metrics.h"
#include "elastic/daemon/plan_terms.h"
#include "elastic/daemon/planner.h"
#include "elastic/daemon/service_book.h"
#include "elastic/daemon/start_times.h"
#include "elastic/daemon/transaction.h"
#include "jobsubmit/policy/policy.h"

namespace bellows {

/// What bellowsd shows of itself, as the JSON text that `bellows plan` prints. Any number of
/// threads may use it.
class PlanBoard {
 public:
  void show(std::string json);
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::string json_ = "{}";
};

/// bellowsd without its sockets and files: looks at the cluster, makes plans and carries them out,
/// one at a time. Decides nothing on what it could not read. Used by one thread.
class Controller {
 public:
  using Clock = std::chrono::steady_clock;
  using Say = std::function<void(const std::string&)>;

  struct Parts {
    Slurm& slurm;
    SlurmPlaces& places;
    JobBook& book;
    ServiceBook& services;
    UserNames& users;
    PlanBoard& board;
    Metrics& metrics;
  };

  /// All must outlive it. `stock_delay`: stock_requeue_delay() of the cluster. `dry`: it plans and
  /// shows, but orders nothing.
  Controller(const Parts& parts, Say say, std::chrono::seconds stock_delay, bool dry);

  /// To be called every few hundred milliseconds.
  void tick(const Policy& policy, Clock::time_point now);
  /// Whether a plan is being carried out.
  bool acts() const { return transaction_.has_value(); }

 private:
  void look(const Policy& policy, Clock::time_point now);
  void note(const std::vector<SlurmJob>& elastic);
  void plan(const Policy& policy, Clock::time_point now);
  /// `divides`: bellowsd does, by the policy.
  void answer(const std::vector<ServiceClaim>& claims, bool divides);
  const PoolPlan* next_to_carry_out() const;
  void begin(const PoolPlan& plan, Clock::time_point now);
  void carry_out(Clock::time_point now);
  void show(Clock::time_point now);
  /// Jobs whose sizes the plan has changed.
  std::size_t moved() const;
  void count();

  Parts parts_;
  Say say_;
  StartTimes start_times_;
  bool dry_;
  bool cleaned_ = false;  ///< what an earlier bellowsd left is cleared
  ClusterState cluster_;
  std::optional<Clock::time_point> looked_;
  Clock::time_point started_{};
  Clock::time_point next_look_{};
  std::string trouble_;
  std::vector<PoolPlan> plans_;
  /// The last plan that is over.
  struct LastPlan {
    std::string name;
    std::string trouble;  ///< empty: all went well
    std::size_t moved = 0;
    Clock::time_point at{};
  };
  std::optional<LastPlan> last_;
  std::pair<std::string, std::string> last_pool_;  ///< that was changed: partition, GPU type
  std::chrono::seconds pause_{0};                  ///< after the last plan
  Clock::time_point next_plan_{};
  std::optional<Transaction> transaction_;
  std::optional<double> restart_s_;  ///< what a plan took, a mean over the last ones
};

}  // namespace bellows
