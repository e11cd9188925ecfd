// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "elastic/daemon/class_book.h"
#include "elastic/daemon/cluster.h"
#include "elastic/daemon/held_service.h"
#include "elastic/policy/job_speed.h"
#include "elastic/wire/message.h"
#include "slurm/job.h"

namespace bellows {

/// What bellowsd knows of one job beside what Slurm says. A value.
struct JobNotes {
  uid_t uid = 0;
  std::time_t seen = 0;        ///< when Slurm last showed it
  std::uint32_t restarts = 0;  ///< of the run that Slurm shows
  bool has_run = false;        ///< this run was seen to
  bool ordered = false;        ///< this run, to go on at another size
  bool counted = false;        ///< what becomes of the order is in `moves`
  std::optional<RunReport> report;
  std::chrono::steady_clock::time_point heard{};
  std::chrono::steady_clock::time_point saves_since{};  ///< where the report says that it saves
  JobSpeed speed;
  HeldService service;
  bool completed = false;   ///< when Slurm last showed it
  bool noise_told = false;  ///< its first noise, to its class
  std::optional<ClassKey> class_key;
  std::shared_ptr<const JobClass> of_class;  ///< in what notes() gives; null: nothing is known
  std::deque<std::time_t> moves;  ///< restarts that bellowsd caused, or may have, in the last hour
  std::uint32_t size = 0;         ///< last seen; 0: never
  std::uint32_t given = 0;        ///< by bellowsd, last; 0: never
  std::time_t user_resized = 0;   ///< when another changed the size; 0: never
  std::optional<Order> order;     ///< that its launcher is to get
  std::optional<OrderAnswer> answer;  ///< to the order
  unsigned failures = 0;              ///< plans in a row that failed with it
  std::chrono::steady_clock::time_point left_alone_until{};
  std::uint32_t too_many = 0;  ///< GPUs with which Slurm did not start it
  std::chrono::steady_clock::time_point too_many_until{};
};

/// What launchers report and what they are ordered. Any number of threads may use it.
class JobBook {
 public:
  using Clock = std::chrono::steady_clock;

  /// Takes over which jobs there are, on nodes with which GPUs; forgets the others.
  void update(const std::vector<SlurmJob>& elastic, std::time_t now, const NodeTypes& types = {});
  /// It has ended of itself, unless an update shows it once more.
  void note_completed(std::uint32_t job);

  /// not_found: no such elastic job; denied: it is another user's, or an earlier run of it.
  Result<ReportReply> take(const RunReport& report, uid_t uid, Clock::time_point now);

  void give_order(std::uint32_t job, const Order& order);
  /// The launcher gets it no more.
  void withdraw_order(std::uint32_t job);
  std::optional<OrderAnswer> answer_of(std::uint32_t job) const;
  /// bellowsd has requeued it, or changed what it asks for while it waits.
  void note_given(std::uint32_t job, std::uint32_t gpus, bool restarted, std::time_t now);
  /// A plan has failed with it: it is left alone, longer each time.
  void note_failed(std::uint32_t job, Clock::time_point now);
  /// Slurm did not start it with so many GPUs.
  void note_stuck(std::uint32_t job, std::uint32_t gpus, Clock::time_point now);

  std::map<std::uint32_t, JobNotes> notes() const;

 private:
  /// Also for its class. Who calls it has the lock, as below.
  void learn(JobNotes& notes, const RunReport& report);
  void forget_before(std::time_t now);
  std::shared_ptr<const JobClass> copy_of(const ClassKey& key) const;
  /// Null: no such job. Who asks has the lock.
  JobNotes* find(std::uint32_t job);

  mutable std::mutex mutex_;
  std::map<std::uint32_t, JobNotes> notes_;
  ClassBook classes_;
  std::time_t now_ = 0;        ///< of the last update
  bool updated_ = false;       ///< once at least
  std::size_t reporting_ = 0;  ///< jobs whose launchers have reported
};

}  // namespace bellows
