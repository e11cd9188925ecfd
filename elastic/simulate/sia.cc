// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/sia.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "elastic/simulate/goodput_table.h"
#include "elastic/simulate/sizes.h"

namespace bellows {
namespace {

constexpr double kExponent = -0.5;
constexpr double kWaiting = 1.1;
constexpr double kUnit = 1e6;  // of the optimizer's values

class Sia : public Scheduler {
 public:
  Sia(const ClusterShape& shape, double restart_s) : shape_(shape), restart_s_(restart_s) {}

  BatchRule batch_rule() const override { return BatchRule::adapted; }

  std::vector<NodeGpus> decide(double now, const std::vector<const SimulatedJob*>& jobs) override {
    std::vector<ElasticJob> elastic;
    const double unit =
        std::min(kUnit, CurveRows::kLargest / 4.0 / static_cast<double>(jobs.size()));
    for (const SimulatedJob* job : jobs) elastic.push_back(value(now, *job, unit));
    return divide_and_pack(std::move(elastic), jobs, shape_);
  }

 private:
  double goodput(const SimulatedJob& job, std::uint32_t gpus) {
    if (!job.noise()) return gpus;
    return tables_[&job].at(job.speed(), *job.noise(), job.application().limits(),
                            packed_layout(gpus, shape_.gpus_per_node));
  }

  // (T - N S) / (T + S), taken as 1 while the job is younger than a restart takes.
  double factor_of_restart(double now, const SimulatedJob& job) const {
    const double age = job.age_s(now);
    if (age < restart_s_ || age + restart_s_ <= 0) return 1;
    return std::max(age - job.restarts() * restart_s_, 1e-3) / (age + restart_s_);
  }

  ElasticJob value(double now, const SimulatedJob& job, double unit) {
    ElasticJob elastic;
    elastic.now = job.gpus();
    elastic.idle_value = static_cast<std::int32_t>(-kWaiting * unit);
    const std::uint32_t most = most_to_explore(job, shape_);
    double least = 0;
    for (std::uint32_t gpus = 1; gpus <= most; ++gpus) {
      if (!is_plain_size(gpus, shape_)) continue;
      double speed = goodput(job, gpus);
      if (speed <= 0) continue;
      if (least == 0) least = speed;
      if (job.gpus() > 0 && gpus != job.gpus()) speed *= factor_of_restart(now, job);
      const double cost = std::min(std::pow(speed / least, kExponent), 2.0);
      elastic.sizes.push_back({gpus, 0, static_cast<std::int32_t>(-cost * unit)});
    }
    return elastic;
  }

  ClusterShape shape_;
  double restart_s_;
  std::map<const SimulatedJob*, GoodputTable> tables_;
};

}  // namespace

std::unique_ptr<Scheduler> make_sia(const ClusterShape& shape, double restart_s) {
  return std::make_unique<Sia>(shape, restart_s);
}

}  // namespace bellows
