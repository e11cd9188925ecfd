// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/optimus.h"

#include <algorithm>
#include <numeric>

#include "elastic/simulate/packing.h"
#include "elastic/simulate/sizes.h"

namespace bellows {
namespace {

double steps_left(const SimulatedJob& job) {
  const Application& application = job.application();
  const std::uint32_t batch = job.submission().batch;
  const std::uint32_t next = std::min(job.epoch() + 1, application.epochs());
  const double left =
      application.steps_until(batch, application.epochs()) - application.steps_until(batch, next);
  return std::max(job.submission().work * left, 1.0);
}

class Optimus : public Scheduler {
 public:
  explicit Optimus(const ClusterShape& shape) : shape_(shape) {}

  BatchRule batch_rule() const override { return BatchRule::fixed; }

  std::vector<NodeGpus> decide(double, const std::vector<const SimulatedJob*>& jobs) override {
    const std::vector<std::uint32_t> sizes = choose_sizes(jobs);
    std::vector<NodeGpus> placed(jobs.size());
    FreeGpus free(shape_);
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (jobs[j]->gpus() != sizes[j] || sizes[j] == 0) continue;
      placed[j] = jobs[j]->held();
      free.take(placed[j]);
    }
    std::vector<std::size_t> order(jobs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&sizes](std::size_t a, std::size_t b) { return sizes[a] < sizes[b]; });
    for (const std::size_t j : order)
      if (placed[j].empty() && sizes[j] > 0) placed[j] = free.take_most_free(sizes[j]);
    return placed;
  }

 private:
  std::vector<std::uint32_t> choose_sizes(const std::vector<const SimulatedJob*>& jobs) const {
    std::uint32_t left = shape_.gpus();
    std::vector<std::uint32_t> sizes(jobs.size());
    std::vector<double> gains(jobs.size());
    for (std::size_t j = 0; j < jobs.size() && left > 0; ++j, --left) sizes[j] = 1;
    for (std::size_t j = 0; j < jobs.size(); ++j) gains[j] = gain(*jobs[j], sizes[j]);
    for (; left > 0; --left) {
      const auto most = std::max_element(gains.begin(), gains.end());
      if (*most <= 0) break;
      const auto j = static_cast<std::size_t>(most - gains.begin());
      gains[j] = gain(*jobs[j], ++sizes[j]);
    }
    return sizes;
  }

  // Seconds by which the job ends sooner with one GPU more.
  double gain(const SimulatedJob& job, std::uint32_t gpus) const {
    const Application& application = job.application();
    const std::uint32_t most =
        std::min({application.largest_gpus(), shape_.gpus(),
                  job.submission().batch / application.limits().smallest_local});
    if (gpus == 0 || gpus >= most) return 0;
    return (submitted_step_s(job, gpus, shape_) - submitted_step_s(job, gpus + 1, shape_)) *
           steps_left(job);
  }

  ClusterShape shape_;
};

}  // namespace

std::unique_ptr<Scheduler> make_optimus(const ClusterShape& shape) {
  return std::make_unique<Optimus>(shape);
}

}  // namespace bellows
