// SPDX-License-Identifier: Apache-2.0
// What the planner plans for, with a book of its jobs.
#pragma once

#include <criterion/criterion.h>

#include <optional>
#include <string>
#include <vector>

#include "elastic/daemon/planner.h"
#include "tests/unit/elastic/fake_cluster.h"

namespace bellows::planner_test {

using Clock = JobBook::Clock;

inline std::string contract(const std::string& tenant, const std::string& gpus) {
  return "bellows/1 tenant=" + tenant + " framework=digits:1.0 gpus=" + gpus +
         " ckpt=/c controller=@ctl:6830";
}

/// Of a launcher whose ranks compute.
inline RunReport running(const SlurmJob& job) {
  RunReport report;
  report.job = job.id;
  report.restarts = job.restarts;
  report.state = RunReport::State::running;
  report.gpus = job.gpus();
  report.nodes = 1;
  return report;
}

/// A cluster of two nodes with 4 GPUs each, whose launchers all report.
struct World {
  FakeCluster cluster{2, 4};
  JobBook book;
  PlanTerms terms;
  Clock::time_point time{std::chrono::seconds(1000)};
  std::optional<std::uint32_t> make_room = 600;
  std::vector<ServiceClaim> services;

  World() { terms.objective.restart_s = 2; }

  SlurmJob& add(std::uint32_t id, std::uint32_t gpus, bool runs, const std::string& tenant = "a",
                const std::string& range = "1-8") {
    return cluster.add(id, gpus, runs, contract(tenant, range));
  }

  void report(std::uint32_t id, double step_s, std::uint64_t batch = 0, std::uint64_t noise = 0) {
    const SlurmJob& job = cluster.all[id];
    RunReport report = running(job);
    report.step_s = step_s;
    report.batch = batch;
    report.noise_scale = noise;
    cr_assert(book.take(report, job.uid, time).ok());
  }

  void note() {
    std::vector<SlurmJob> elastic;
    for (const auto& [id, job] : cluster.all)
      if (elastic_contract(job)) elastic.push_back(job);
    book.update(elastic, static_cast<std::time_t>(cluster.clock));
  }

  void all_report() {
    note();
    for (const auto& [id, job] : cluster.all)
      if (job.state == SlurmState::running && elastic_contract(job)) report(id, 0.1);
  }

  std::vector<Pool> pools() {
    auto state = read_cluster(cluster, cluster);
    cr_assert(state.ok());
    return pools_of(*state, make_room, services);
  }

  PoolPlan plan() {
    const auto pools = this->pools();
    cr_assert(pools.size() == 1, "%zu pools", pools.size());
    auto plan =
        plan_gpus(pools[0], book.notes(), terms, static_cast<std::time_t>(cluster.clock), time);
    cr_assert(plan.ok());
    return *plan;
  }

  std::uint32_t planned(std::uint32_t id) {
    const PoolPlan plan = this->plan();
    for (const PlanLine& line : plan.lines)
      if (line.job.id == id) return line.to;
    return UINT32_MAX;
  }
  std::string reason(std::uint32_t id) {
    const PoolPlan plan = this->plan();
    for (const PlanLine& line : plan.lines)
      if (line.job.id == id) return line.reason;
    return "no line";
  }
};

}  // namespace bellows::planner_test
