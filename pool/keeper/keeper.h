// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "pool/keeper/cluster_worker.h"
#include "pool/keeper/desk.h"
#include "pool/keeper/size_choice.h"
#include "pool/keeper/size_limit.h"
#include "pool/keeper/step_plan.h"
#include "pool/wire/pool_settings.h"

namespace bellows::pool {

/// What came of a turn.
enum class KeeperTurn {
  goes_on,
  pool_ended,
  replaced,  ///< another keeper has the pool
};

/// Whether a keeper may act. A value.
struct Standing {
  Clock::time_point acts_until;   ///< by the newest list
  Clock::time_point hears_since;  ///< since then there has always been one
  bool replaced = false;          ///< another keeper has the pool

  bool may_act(Clock::time_point now) const { return now < acts_until; }
};

/// Holds a pool at its size: asks Slurm for members, drains those that are to go, and tells callers
/// who takes calls. What it has to know of the past it asks Slurm, so it may be killed at any time.
class PoolKeeper final : private DeskKeeper {
 public:
  using Say = std::function<void(const std::string&)>;
  /// Told of the members whenever callers are. False: it is to be told again.
  using Tell = std::function<bool(const Members&)>;

  /// `dir` is the pool's, `run` that of the keeper's job; `cluster` must outlive it.
  PoolKeeper(std::string dir, PoolSettings settings, PoolPolicy policy, PoolOrders orders,
             KeeperRun run, Cluster& cluster, Say say);
  PoolKeeper(const PoolKeeper&) = delete;
  PoolKeeper& operator=(const PoolKeeper&) = delete;
  ~PoolKeeper() override;

  /// Before the first turn.
  void set_proxy(std::string address, Tell tell) {
    proxy_address_ = std::move(address);
    proxy_ = std::move(tell);
  }
  /// Before the first turn: the pool has no more members than this says.
  void set_limit(SizeLimit::Ask ask) { limit_ = std::make_unique<SizeLimit>(std::move(ask)); }
  /// Listens, and says where in the pool's directory. busy: a later keeper has the pool.
  Status open(const PoolKey& key, const std::string& host);
  /// One turn, at least each second. After the last one the keeper does nothing any more.
  KeeperTurn turn(Clock::time_point now);
  /// Until there is news, or for that long.
  void wait(std::chrono::milliseconds most);

 private:
  bool report(const MemberReport& report) override;
  void left(std::uint32_t job, std::uint64_t incarnation) override;
  Pool show() override;
  Result<Pool> change(const ChangeRequest& request) override;

  void take(const ClusterNews& news);
  void take_jobs(const PoolQueue& jobs, Clock::time_point asked);
  StepPlan plan_locked(Clock::time_point now);
  bool settled_locked(Clock::time_point now) const;
  void choose_size_locked(Clock::time_point now);
  void limit_size_locked();
  void take_trouble(const ClusterNews& news);
  std::string trouble_locked() const;
  void carry_out(const StepPlan& plan);
  void tell_all(Clock::time_point now);
  Pool show_locked() const;
  std::shared_ptr<const Members> members_locked() const;
  Status order(const PoolOrders& orders);
  Status drain_one(std::uint32_t job);
  Status carry_out_change(const ChangeRequest& request);

  const std::string dir_;
  const PoolSettings settings_;
  const KeeperRun run_;
  Cluster& cluster_;
  const Say say_;
  Tell proxy_;
  std::string proxy_address_;
  std::mutex mutex_;  ///< of all below but the last two
  std::condition_variable news_;
  bool has_news_ = false;
  MemberBook book_;
  SizeChoice size_;
  Wish wish_;
  std::unique_ptr<SizeLimit> limit_;
  std::optional<std::uint32_t> kept_;  ///< members when this keeper began, until the limit is known
  bool knows_members_ = false;         ///< Slurm has listed them since this keeper began
  Clock::time_point settles_by_;
  Standing standing_;
  PoolOrders orders_;
  std::uint64_t told_version_ = 0;
  Clock::time_point told_at_;
  std::string submit_trouble_;
  std::string list_trouble_;
  std::unique_ptr<ClusterWorker> worker_;
  std::unique_ptr<Desk> desk_;
};

}  // namespace bellows::pool
