// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "elastic/daemon/cluster.h"
#include "elastic/daemon/job_book.h"
#include "elastic/daemon/transaction.h"
#include "slurm/requeue.h"
#include "tests/unit/elastic/fake_cluster.h"

namespace bellows {

inline std::string elastic_contract_line() {
  return "bellows/1 tenant=a framework=digits:1.0 gpus=1-8 ckpt=/c controller=@ctl:6830";
}

struct FakeUsers final : UserNames {
  std::string name_of(uid_t uid) override { return "user" + std::to_string(uid); }
};

/// The launchers of all elastic jobs, each on the first node of its job: half a second after an
/// order the job is saved; 10 s after that without a requeue by another they do it themselves. Jobs
/// that lost a node save no more.
class FakeLaunchers {
 public:
  using Clock = std::chrono::steady_clock;

  FakeLaunchers(FakeCluster& cluster, JobBook& book) : cluster_(cluster), book_(book) {}

  std::set<std::uint32_t> refuse;
  std::set<std::uint32_t> silent;
  bool unheard = false;  ///< bellowsd stands still
  std::map<std::uint32_t, Order> orders;

  Clock::time_point now() const {
    return Clock::time_point(std::chrono::seconds(5000)) +
           std::chrono::duration_cast<Clock::duration>(
               std::chrono::duration<double>(cluster_.clock));
  }

  void act() {
    for (auto& [id, job] : cluster_.all) {
      if (!elastic_contract(job)) continue;
      const bool dead = !job.nodes.empty() && cluster_.is_lost(job.nodes[0].node);
      if (job.state != SlurmState::running || dead)
        end(job, dead);
      else if (!silent.contains(id))
        run(job);
    }
  }

 private:
  /// It finds that another has requeued its job, and adds what is missing.
  void end(const SlurmJob& job, bool dead) {
    if (job.completing && !dead) go_on(job.id, job.restarts - 1);
    committed_.erase(job.id);
    orders.erase(job.id);
  }

  void run(const SlurmJob& job) {
    const std::uint32_t id = job.id;
    RunReport report;
    report.job = id;
    report.restarts = job.restarts;
    report.state = RunReport::State::running;
    report.gpus = job.gpus();
    report.step_s = report.gpus > 0 ? 0.4 / report.gpus : 0;
    if (orders.contains(id) && refuse.contains(id))
      report.answer = OrderAnswer{orders[id].id, false, std::nullopt, "not now"};
    if (committed_.contains(id)) report.answer = OrderAnswer{orders[id].id, true, 7, ""};
    if (!unheard) tell(report, job);
    if (!orders.contains(id) || refuse.contains(id)) return;
    const bool may_commit = cluster_.clock >= commits_at_[id] && !cluster_.has_lost_node(job);
    if (!committed_.contains(id) && may_commit) committed_[id] = cluster_.clock;
    if (committed_.contains(id) && cluster_.clock >= committed_[id] + 10) go_on(id, job.restarts);
  }

  void tell(const RunReport& report, const SlurmJob& job) {
    const auto reply = book_.take(report, job.uid, now());
    if (!reply.ok() || !reply->order || orders.contains(job.id)) return;
    orders[job.id] = *reply->order;
    commits_at_[job.id] = cluster_.clock + 0.5;
  }

  /// GPUs that others were to give up may not be there.
  void go_on(std::uint32_t id, std::uint32_t restarts) {
    const std::uint32_t held = cluster_.all[id].gpus();
    NextRun next{.restarts = restarts, .gpus_now = held};
    if (committed_.contains(id) && orders[id].gpus < held) next.gpus = orders[id].gpus;
    const RoadTime time{[this] { return now(); },
                        [this](std::chrono::milliseconds pause) {
                          cluster_.advance(std::chrono::duration<double>(pause).count());
                        }};
    walk(RequeueRoad(Party::launcher, next, now()), cluster_, cluster_.all[id], time);
  }

  FakeCluster& cluster_;
  JobBook& book_;
  std::map<std::uint32_t, double> commits_at_;  ///< when it will have committed
  std::map<std::uint32_t, double> committed_;   ///< since when
};

}  // namespace bellows
