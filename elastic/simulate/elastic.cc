// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/elastic.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "elastic/simulate/goodput_table.h"
#include "elastic/simulate/sizes.h"

namespace bellows {
namespace {

/// Divides by the optimizer; what is known of a job is for those that derive from it to say.
class ByOptimizer : public Scheduler {
 public:
  ByOptimizer(const ClusterShape& shape, const ObjectiveTerms& terms)
      : shape_(shape), terms_(terms) {}

  std::vector<NodeGpus> decide(double now, const std::vector<const SimulatedJob*>& jobs) override {
    std::vector<JobState> states;
    std::map<const Application*, std::uint32_t> classes;
    for (const SimulatedJob* job : jobs) {
      states.push_back({.sizes = {},
                        .now = job->gpus(),
                        .age_s = job->age_s(now),
                        .restarts = job->restarts(),
                        .waited_s = job->waited_s(now),
                        .service = job->service(now),
                        .job_class = class_of(*job, classes),
                        .weight = 1});
      for (std::uint32_t gpus = 1; gpus <= most_gpus(*job); ++gpus)
        if (is_plain_size(gpus, shape_)) add_size(states.back(), *job, gpus);
    }
    weigh(now, jobs, states);
    return divide_and_pack(value_jobs(states, terms_), jobs, shape_);
  }

 protected:
  virtual std::uint32_t most_gpus(const SimulatedJob& job) const = 0;
  virtual SizeSpeed speed(const SimulatedJob& job, std::uint32_t gpus) = 0;
  virtual void weigh(double, const std::vector<const SimulatedJob*>&,
                     std::vector<JobState>&) const {}
  const ClusterShape& shape() const { return shape_; }

 private:
  static std::uint32_t class_of(const SimulatedJob& job,
                                std::map<const Application*, std::uint32_t>& classes) {
    return classes.try_emplace(&job.application(), classes.size()).first->second;
  }

  void add_size(JobState& state, const SimulatedJob& job, std::uint32_t gpus) {
    const SizeSpeed at_size = speed(job, gpus);
    if (at_size.progress_per_s > 0) state.sizes.push_back(at_size);
  }

  ClusterShape shape_;
  ObjectiveTerms terms_;
};

class Elastic : public ByOptimizer {
 public:
  using ByOptimizer::ByOptimizer;

  BatchRule batch_rule() const override { return BatchRule::adapted; }

 protected:
  std::uint32_t most_gpus(const SimulatedJob& job) const override {
    return most_to_explore(job, shape());
  }

  void weigh(double, const std::vector<const SimulatedJob*>&,
             std::vector<JobState>& states) const override {
    weigh_by_class(states);
  }

  SizeSpeed speed(const SimulatedJob& job, std::uint32_t gpus) override {
    const double perfect = gpus;
    if (!job.noise()) return {gpus, 0, perfect, perfect};
    const GpuLayout layout = packed_layout(gpus, shape().gpus_per_node);
    const double per_s =
        tables_[&job].at(job.speed(), *job.noise(), job.application().limits(), layout);
    return {gpus, 0, per_s, per_s / job.speed().excess(layout)};
  }

 private:
  std::map<const SimulatedJob*, GoodputTable> tables_;
};

double smallest_step_s(const Application& application) {
  const Batch batch =
      lay_out(application.limits(), {.nodes = 1, .gpus = 1}, application.limits().submitted);
  return application.steps().at({1}, batch.local).step_s * batch.passes;
}

class Informed : public Elastic {
 public:
  using Elastic::Elastic;

 protected:
  void weigh(double now, const std::vector<const SimulatedJob*>& jobs,
             std::vector<JobState>& states) const override {
    weigh_by_class(states);
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const double left =
          jobs[j]->progress_after(jobs[j]->application().epochs()) - jobs[j]->progress(now);
      // In seconds on one GPU with the smallest batch, to compare jobs of different programs. The
      // power is the best of those that were tried.
      const double left_s = left * smallest_step_s(jobs[j]->application());
      states[j].weight *= std::pow(std::max(left_s, 1.0), -0.25);
    }
  }
};

class FixedBatch : public ByOptimizer {
 public:
  using ByOptimizer::ByOptimizer;

  BatchRule batch_rule() const override { return BatchRule::fixed; }

 protected:
  std::uint32_t most_gpus(const SimulatedJob& job) const override {
    return std::min(
        {shape().gpus(), job.application().largest_gpus(),
         std::max(1U, job.submission().batch / job.application().limits().smallest_local)});
  }

  SizeSpeed speed(const SimulatedJob& job, std::uint32_t gpus) override {
    const double steps = 1 / submitted_step_s(job, gpus, shape());
    return {gpus, job.submission().batch, steps, steps};
  }
};

}  // namespace

std::unique_ptr<Scheduler> make_elastic(const ClusterShape& shape, const ObjectiveTerms& terms) {
  return std::make_unique<Elastic>(shape, terms);
}

std::unique_ptr<Scheduler> make_informed(const ClusterShape& shape, const ObjectiveTerms& terms) {
  return std::make_unique<Informed>(shape, terms);
}

std::unique_ptr<Scheduler> make_fixed_batch(const ClusterShape& shape, double restart_s) {
  return std::make_unique<FixedBatch>(
      shape, ObjectiveTerms{.objective = Objective::throughput, .restart_s = restart_s});
}

}  // namespace bellows
