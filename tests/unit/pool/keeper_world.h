// SPDX-License-Identifier: Apache-2.0
// A keeper with members that speak gRPC to it, and a Slurm that is a fake.
#pragma once

#include <criterion/criterion.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "pool/command/keeper_client.h"
#include "pool/keeper/keeper.h"
#include "pool/member/keeper_line.h"
#include "pool/wire/pool_place.h"
#include "tests/unit/support/scratch_dir.h"

namespace bellows::pool {

using namespace std::chrono_literals;

/// A Slurm whose jobs run at once, and end when they are cancelled.
class FakeCluster final : public Cluster {
 public:
  Result<std::uint32_t> submit() override {
    asked = true;
    while (holds) std::this_thread::sleep_for(10ms);
    const std::lock_guard lock(mutex_);
    if (refuses_) return Error{ErrorKind::unavailable, "sbatch: not today"};
    SlurmJob job;
    job.id = ++last_;
    job.state = SlurmState::running;
    jobs_[job.id] = job;
    return job.id;
  }
  Status cancel(std::uint32_t job) override {
    ++cancelled;
    end(job);
    return {};
  }
  Result<PoolQueue> jobs() override {
    const std::lock_guard lock(mutex_);
    if (away_) return Error{ErrorKind::unavailable, "slurmctld is away"};
    PoolQueue all{.members = {}, .keeper = keeper_};
    for (const auto& [id, job] : jobs_) all.members.push_back(job);
    return all;
  }

  std::atomic<int> cancelled = 0;   ///< members
  std::atomic<bool> asked = false;  ///< for a member
  std::atomic<bool> holds = false;  ///< sbatch gives no answer

  SlurmJob keeper() {
    const std::lock_guard lock(mutex_);
    return keeper_;
  }
  void set_keeper(const SlurmJob& job) {
    const std::lock_guard lock(mutex_);
    keeper_ = job;
  }
  /// What sbatch has sent, and slurmctld takes only now.
  std::uint32_t take_late() { return *submit(); }

  void end(std::uint32_t job) {
    const std::lock_guard lock(mutex_);
    jobs_.at(job).state = SlurmState::completed;
  }
  void set_away(bool away) {
    const std::lock_guard lock(mutex_);
    away_ = away;
  }
  void set_refuses(bool refuses) {
    const std::lock_guard lock(mutex_);
    refuses_ = refuses;
  }
  std::uint32_t running() {
    const std::lock_guard lock(mutex_);
    std::uint32_t count = 0;
    for (const auto& [id, job] : jobs_) count += job.state == SlurmState::running ? 1 : 0;
    return count;
  }
  std::uint32_t submitted() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  static SlurmJob keeper_job() {
    SlurmJob job;
    job.id = 1000;
    job.state = SlurmState::running;
    return job;
  }

  std::mutex mutex_;
  SlurmJob keeper_ = keeper_job();
  std::map<std::uint32_t, SlurmJob> jobs_;
  std::uint32_t last_ = 0;
  bool away_ = false;
  bool refuses_ = false;
};

template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = 10s) {
  const auto end = Clock::now() + limit;
  while (!condition() && Clock::now() < end) std::this_thread::sleep_for(10ms);
  return condition();
}

/// A pool's directory, and a keeper that turns in a thread.
class KeeperWorld {
 public:
  KeeperWorld() {
    key = *make_key();
    cr_assert(replace_file(dir() + "/key.pem", key.key, 0600).ok());
    cr_assert(replace_file(dir() + "/cert.pem", key.certificate, 0600).ok());
  }
  ~KeeperWorld() { stop(); }

  std::string dir() const { return dir_.path(); }
  void start() {
    const auto orders = read_orders(dir());
    cr_assert(orders);
    auto policy = read_policy(dir(), settings);
    cr_assert(policy);
    keeper_ = std::make_unique<PoolKeeper>(dir(), settings, std::move(*policy), *orders, run,
                                           cluster, [](const std::string&) {});
    if (ask) keeper_->set_limit(ask);
    cr_assert(keeper_->open(key, "127.0.0.1").ok());
    stops_ = false;
    turning_ = std::thread([this] {
      while (!stops_ && (last = keeper_->turn(Clock::now() + later.load())) == KeeperTurn::goes_on)
        keeper_->wait(50ms);
    });
  }
  void stop() {
    stops_ = true;
    if (turning_.joinable()) turning_.join();
    keeper_.reset();
  }
  Pool pool() {
    const auto pool = ask_pool(dir());
    cr_assert(pool, "%s", pool ? "" : pool.error().text.c_str());
    return *pool;
  }
  std::uint32_t count(MemberState state) {
    std::uint32_t members = 0;
    const Pool asked = pool();
    for (const Member& member : asked.member()) members += member.state() == state ? 1 : 0;
    return members;
  }
  Result<Pool> scale(std::uint32_t size) {
    ChangeRequest request;
    request.set_scale(size);
    return change_pool(dir(), request);
  }

  PoolSettings settings{.name = "web", .min = 1, .max = 4};
  PoolKey key;
  FakeCluster cluster;
  KeeperRun run{.job = cluster.keeper(), .term = 7};
  std::atomic<KeeperTurn> last = KeeperTurn::goes_on;
  std::atomic<std::chrono::seconds> later{0s};  ///< what its clock says above that of its lists
  SizeLimit::Ask ask;                           ///< empty: nobody limits the pool

 private:
  ScratchDir dir_;
  std::unique_ptr<PoolKeeper> keeper_;
  std::thread turning_;
  std::atomic<bool> stops_ = false;
};

/// `load`: a metric that it has beside.
inline Report ready_report(std::uint32_t job, double load = 0) {
  Report report;
  report.set_job(job);
  report.set_incarnation(1);
  report.set_address("127.0.0.1:" + std::to_string(job));
  report.set_ready(true);
  Metric* const metric = report.add_metric();
  metric->set_name("load");
  metric->set_value(load);
  return report;
}

/// The agent of a member, in a thread of its own: it says that it is ready until it is told to
/// drain, and ends its job then.
class FakeMember {
 public:
  FakeMember(KeeperWorld& world, std::uint32_t job) : world_(world), job_(job) {
    thread_ = std::thread([this] { run(); });
  }
  ~FakeMember() {
    stops_ = true;
    thread_.join();
  }
  std::atomic<bool> drained = false;
  std::atomic<double> load = 0;

 private:
  void run() {
    const auto line = std::move(*KeeperLine::open(world_.dir(), world_.key));
    while (!stops_) {
      line->send(ready_report(job_, load));
      std::this_thread::sleep_for(50ms);
      const auto order = line->take_order();
      if (!order || !order->drain()) continue;
      drained = true;
      world_.cluster.end(job_);
      return;
    }
  }

  KeeperWorld& world_;
  const std::uint32_t job_;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

/// One whose pool has two members, which work.
struct WorkingWorld : KeeperWorld {
  WorkingWorld() {
    settings.min = 2;
    start();
    cr_assert(eventually([&] { return cluster.running() == 2; }));
    first.emplace(*this, 1);
    second.emplace(*this, 2);
    cr_assert(eventually([&] { return count(READY) == 2; }));
  }

  std::optional<FakeMember> first, second;
};

}  // namespace bellows::pool
