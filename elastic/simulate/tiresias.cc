// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/tiresias.h"

#include <algorithm>
#include <limits>

#include "elastic/simulate/packing.h"

namespace bellows {
namespace {

/// With two queues, or one.
class Tiresias : public Scheduler {
 public:
  /// `first_queue`: GPU-seconds of a job in the first queue.
  Tiresias(const ClusterShape& shape, double first_queue)
      : shape_(shape), first_queue_(first_queue) {}

  BatchRule batch_rule() const override { return BatchRule::fixed; }

  std::vector<NodeGpus> decide(double now, const std::vector<const SimulatedJob*>& jobs) override {
    for (const SimulatedJob* job : jobs)
      if (job->service(now) >= first_queue_ && !is_in_second(job)) second_.push_back(job);
    std::vector<std::size_t> order;
    for (std::size_t j = 0; j < jobs.size(); ++j)
      if (!is_in_second(jobs[j])) order.push_back(j);
    for (const SimulatedJob* demoted : second_)
      for (std::size_t j = 0; j < jobs.size(); ++j)
        if (jobs[j] == demoted) order.push_back(j);
    return place(jobs, order);
  }

 private:
  bool is_in_second(const SimulatedJob* job) const {
    return std::find(second_.begin(), second_.end(), job) != second_.end();
  }

  std::vector<NodeGpus> place(const std::vector<const SimulatedJob*>& jobs,
                              const std::vector<std::size_t>& order) const {
    std::vector<NodeGpus> placed(jobs.size());
    std::vector<std::size_t> to_start;
    FreeGpus free(shape_);
    std::uint32_t left = shape_.gpus();
    for (const std::size_t j : order) {
      const std::uint32_t gpus = jobs[j]->submission().gpus;
      if (gpus > left) continue;
      left -= gpus;
      if (jobs[j]->gpus() == 0) {
        to_start.push_back(j);
        continue;
      }
      placed[j] = jobs[j]->held();
      free.take(placed[j]);
    }
    for (const std::size_t j : to_start)
      placed[j] = free.take_most_free(jobs[j]->submission().gpus);
    return placed;
  }

  ClusterShape shape_;
  double first_queue_;
  std::vector<const SimulatedJob*> second_;  ///< in the order in which they came there
};

}  // namespace

std::unique_ptr<Scheduler> make_tiresias(const ClusterShape& shape) {
  return std::make_unique<Tiresias>(shape, 16.0 * 3600);
}

std::unique_ptr<Scheduler> make_fixed_size(const ClusterShape& shape) {
  return std::make_unique<Tiresias>(shape, std::numeric_limits<double>::infinity());
}

}  // namespace bellows
