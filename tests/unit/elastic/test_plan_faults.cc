// SPDX-License-Identifier: Apache-2.0
// What becomes of jobs when something fails while bellowsd carries out a plan, and of the plans
// after it.
#include <criterion/criterion.h>

#include <functional>
#include <string>

#include "elastic/daemon/controller.h"
#include "tests/unit/elastic/fake_cluster.h"
#include "tests/unit/elastic/fake_launchers.h"

using namespace bellows;

TestSuite(plan_faults, .timeout = 120);

namespace {

constexpr double kStep = 0.25;
constexpr std::uint32_t kJobs = 3;

/// Eight GPUs, which two jobs share, of which one is to give up some for a third that waits.
struct World {
  FakeCluster cluster{2, 4};
  JobBook book;
  ServiceBook services;
  FakeUsers users;
  PlanBoard board;
  Metrics metrics;
  FakeLaunchers launchers{cluster, book};
  Policy policy;
  Controller controller{{cluster, cluster, book, services, users, board, metrics},
                        [](const std::string&) {},
                        stock_requeue_delay(""),
                        false};

  World() {
    policy.controller.emplace();
    policy.controller->dwell_s = 5;
    cluster.add(1, 6, true, elastic_contract_line());
    cluster.add(2, 2, true, elastic_contract_line());
    cluster.add(3, 2, false, elastic_contract_line());
  }
  void step() {
    cluster.advance(kStep);
    launchers.act();
    if (!launchers.unheard) controller.tick(policy, launchers.now());
  }
  void run(double seconds) {
    for (const double end = cluster.clock + seconds; cluster.clock < end;) step();
  }
  /// Until the call to Slurm of this number, counted from 1 at the first plan's reservation. False:
  /// the plan was over before.
  bool run_to(int call) {
    int made = 0;
    bool there = false;
    cluster.before_call = [&](const std::string& name) {
      if (made > 0 || name == "reserve") there = ++made == call || there;
    };
    for (int i = 0; i < 400 && !there && (made == 0 || controller.acts()); ++i) step();
    cluster.before_call = nullptr;
    return there;
  }
  std::uint32_t held(std::uint32_t id) { return cluster.all[id].gpus(); }

  void expect_all_run(const std::string& when) {
    std::uint32_t sum = 0;
    for (std::uint32_t id = 1; id <= kJobs; ++id) {
      const SlurmJob& job = cluster.all[id];
      cr_expect(job.state == SlurmState::running, "%s: job %u waits for %u GPUs: %s", when.c_str(),
                id, job.requested_gpus(), job.reservation.c_str());
      cr_expect(job.reservation.empty() && job.priority > 0, "%s: job %u", when.c_str(), id);
      sum += held(id);
    }
    cr_expect(sum <= cluster.capacity(), "%s: %u GPUs", when.c_str(), sum);
    cr_expect(cluster.held.empty(), "%s", when.c_str());
    cr_expect(cluster.over_capacity == 0 && cluster.held_by_slurm == 0, "%s", when.c_str());
  }
};

}  // namespace

Test(plan_faults, nothing_fails) {
  World world;
  cr_assert(world.run_to(1));
  world.run(60);
  world.expect_all_run("without a fault");
}

/// The jobs that Slurm requeues wait for the lifetime of a credential.
Test(plan_faults, whenever_a_node_is_lost_all_jobs_run_on_what_is_left) {
  for (const char* node : {"n1", "n2"}) {
    int call = 1;
    for (;; ++call) {
      World world;
      if (!world.run_to(call)) break;
      world.cluster.lose(node);
      world.run(300);
      world.expect_all_run(std::string(node) + " lost at call " + std::to_string(call));
    }
    cr_expect(call > 10);
  }
}

Test(plan_faults, whenever_bellowsd_stands_still_all_jobs_run) {
  for (const double seconds : {12.0, 20.0}) {
    int call = 1;
    for (;; ++call) {
      World world;
      if (!world.run_to(call)) break;
      world.launchers.unheard = true;
      world.run(seconds);
      world.launchers.unheard = false;
      world.run(120);
      world.expect_all_run("stood still at call " + std::to_string(call));
    }
    cr_expect(call > 10);
  }
}
