// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/pollux_problem.h"

#include <algorithm>
#include <cmath>

#include "elastic/simulate/sizes.h"

namespace bellows {
namespace {

constexpr double kSmallest = 1e-3;

double factor_of_restart(const SimulatedJob& job, double now, double restart_s) {
  const double age = job.age_s(now);
  return std::max(age - job.restarts() * restart_s, 0.0) / std::max(age + restart_s, 1e-9);
}

}  // namespace

PolluxProblem::PolluxProblem(double now, const std::vector<const SimulatedJob*>& jobs,
                             const ClusterShape& shape, double restart_s,
                             std::map<const SimulatedJob*, GoodputTable>& tables)
    : shape_(shape), held_(jobs.size() * shape.nodes) {
  const auto fair = static_cast<std::uint32_t>((shape.gpus() + jobs.size() - 1) / jobs.size());
  fair_gpus_ = fair;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const SimulatedJob& job = *jobs[j];
    std::copy(job.held().begin(), job.held().end(),
              held_.begin() + static_cast<std::ptrdiff_t>(j * shape.nodes));
    GoodputTable& table = tables[&job];
    const double fair_goodput =
        job.noise() ? table.at(job.speed(), *job.noise(), job.application().limits(), {1, fair})
                    : 0;
    jobs_.push_back({&job, &table, most_to_explore(job, shape), fair_goodput,
                     factor_of_restart(job, now, restart_s),
                     std::vector<double>((shape.nodes + 1) * (shape.gpus() + 1), -1.0)});
  }
}

double PolluxProblem::speedup(Job& job, std::uint32_t nodes, std::uint32_t gpus) const {
  if (gpus == 0) return 0;
  double& known = job.speedups[nodes * (shape_.gpus() + 1) + gpus];
  if (known >= 0) return known;
  if (!job.job->noise()) return known = gpus / fair_gpus_;
  const double goodput = job.table->at(job.job->speed(), *job.job->noise(),
                                       job.job->application().limits(), {nodes, gpus});
  return known = job.fair_goodput > 0 ? goodput / job.fair_goodput : 0;
}

double PolluxProblem::cost(const PolluxState& state) {
  double sum = 0;
  const std::uint8_t* row = state.data();
  const std::uint8_t* held = held_.data();
  for (Job& job : jobs_) {
    std::uint32_t nodes = 0;
    std::uint32_t gpus = 0;
    for (std::uint32_t n = 0; n < shape_.nodes; ++n) {
      nodes += row[n] > 0;
      gpus += row[n];
    }
    double speed = speedup(job, nodes, gpus) / shape_.gpus_per_node;
    if (!std::equal(row, row + shape_.nodes, held)) speed *= job.restart_factor;
    sum += 1 / (speed + kSmallest);
    row += shape_.nodes;
    held += shape_.nodes;
  }
  return sum;
}

}  // namespace bellows
