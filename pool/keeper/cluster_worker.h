// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "pool/keeper/cluster.h"
#include "pool/keeper/keeper_seat.h"
#include "pool/keeper/member_book.h"

namespace bellows::pool {

/// What came of what Slurm was asked. A value.
struct ClusterNews {
  std::vector<std::uint32_t> submitted;
  std::optional<PoolQueue> jobs;                ///< a list that was asked for after all of that
  Clock::time_point asked{};                    ///< for that list
  bool replaced = false;                        ///< another keeper has the pool: see list_trouble
  std::optional<std::string> submit_trouble{};  ///< why the last one failed
  std::optional<std::string> cancel_trouble{};
  std::optional<std::string> list_trouble{};
};

/// Asks Slurm from a thread of its own, since slurmctld may take a minute to answer. Submits,
/// cancels and lists again and again.
class ClusterWorker {
 public:
  using Tell = std::function<void(ClusterNews)>;

  /// How long a keeper acts by a list: Slurm starts no other run of its job within that, since a
  /// job that is requeued waits for as long as a credential lives.
  static constexpr std::chrono::seconds kActsFor{10};

  /// `cluster` must outlive it. `seat`: has been taken; who does not have it any more, or is not in
  /// the job's current run, gets no list, and neither submits nor cancels. `tell` is called by the
  /// thread.
  ClusterWorker(Cluster& cluster, KeeperSeat seat, SlurmJob run, Tell tell);
  ClusterWorker(const ClusterWorker&) = delete;
  ClusterWorker& operator=(const ClusterWorker&) = delete;
  /// Waits for the question that is under way.
  ~ClusterWorker();

  /// So many more than those that were told of, in the place of what was wanted before. Who calls
  /// this must not be told meanwhile.
  void want(std::uint32_t submissions);
  void cancel(std::uint32_t job);
  /// Whether Slurm is being asked for a member. Who calls this must not be told meanwhile.
  bool is_submitting() const;

 private:
  void run();
  bool wait();
  bool may_submit(Clock::time_point now) const;
  void cancel_all(ClusterNews& news);
  void submit_all(ClusterNews& news);
  void list(ClusterNews& news);

  Cluster& cluster_;
  KeeperSeat seat_;  ///< of the thread
  const SlurmJob run_;
  const Tell tell_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::uint32_t wanted_ = 0;
  bool submits_ = false;
  std::deque<std::uint32_t> cancels_;
  bool ends_ = false;
  Clock::time_point list_at_;     ///< of the thread
  Clock::time_point acts_until_;  ///< of the thread
  Clock::time_point submit_at_;   ///< of the thread; after a refusal it is later
  std::thread thread_;
};

}  // namespace bellows::pool
