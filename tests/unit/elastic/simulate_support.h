// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "elastic/simulate/application.h"
#include "elastic/simulate/cluster.h"
#include "tests/unit/support/scratch_dir.h"

namespace bellows {

inline bool near(double got, double want) {
  return std::abs(got - want) <= 1e-9 * std::max(1.0, std::abs(want));
}

/// A folder of measurements.
class MeasuredFolder {
 public:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path() + "/" + name, std::ios::binary) << text;
  }
  void remove(const std::string& name) const { std::filesystem::remove(path() + "/" + name); }
  const std::string& path() const { return dir_.path(); }

 private:
  ScratchDir dir_;
};

/// The exchange of gradients of a program, in seconds.
struct Exchange {
  double inside = 0.5;
  double between = 1.5;
};

/// A program that computes 0.1 s for each sample of a rank, and has three epochs of 100 steps of 10
/// samples. Twice the batch is worth 4/3 steps, four times 8/5.
class SmallProgram {
 public:
  explicit SmallProgram(const Exchange& exchange = {}, const ApplicationTerms& terms = {}) {
    write_steps(exchange);
    for (const std::uint32_t batch : {10u, 20u, 40u, 80u, 160u}) write_validation(batch);
    auto read = Application::read(folder_.path(), terms);
    cr_assert(read.ok(), "%s", read.ok() ? "" : read.error().text.c_str());
    application_ = *std::move(read);
  }

  const Application& application() const { return application_; }

 private:
  static std::string step(std::uint32_t local, double exchange) {
    return std::to_string(local) + "," + std::to_string(0.1 * local + exchange) + "," +
           std::to_string(exchange) + "\n";
  }

  void write_steps(const Exchange& exchange) const {
    std::string placements = "placement,local_bsz,step_time,sync_time\n";
    std::string scalability = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n";
    for (const std::uint32_t local : {5u, 10u, 20u, 40u}) {
      placements += "1," + step(local, 0);
      for (const char* inside : {"2", "3", "4"})
        placements += std::string(inside) + "," + step(local, exchange.inside);
      for (const char* between : {"11", "22", "44"})
        placements += std::string(between) + "," + step(local, exchange.between);
      scalability += "3,3," + step(local, exchange.between);
      scalability += "3,12," + step(local, exchange.between);
    }
    folder_.write("placements.csv", placements);
    folder_.write("scalability.csv", scalability);
  }

  void write_validation(std::uint32_t batch) const {
    std::string text = "progress,iteration,grad_sqr,grad_var\n";
    for (const int epoch : {1, 2, 3}) {
      const double progress = 100.0 * epoch;
      const double steps = progress / step_gain({1, 1}, batch / 10.0);
      text += std::to_string(progress) + "," + std::to_string(steps) + ",1,1\n";
    }
    folder_.write("validation-" + std::to_string(batch) + ".csv", text);
  }

  MeasuredFolder folder_;
  Application application_;
};

using Jobs = std::vector<const SimulatedJob*>;

/// Decides as it is told to.
class ScriptedScheduler : public Scheduler {
 public:
  using Decide = std::function<std::vector<NodeGpus>(double, const Jobs&)>;

  explicit ScriptedScheduler(Decide decide, BatchRule rule = BatchRule::fixed)
      : decide_(std::move(decide)), rule_(rule) {}
  BatchRule batch_rule() const override { return rule_; }
  std::vector<NodeGpus> decide(double now, const Jobs& jobs) override { return decide_(now, jobs); }

 private:
  Decide decide_;
  BatchRule rule_;
};

}  // namespace bellows
