// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/elastic.h"

#include <algorithm>
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
    look_at(now, jobs);
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
  virtual void look_at(double, const std::vector<const SimulatedJob*>&) {}
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
  const JobClass* class_for(const Application& application) override {
    return &classes_[&application];
  }

 protected:
  void look_at(double, const std::vector<const SimulatedJob*>& jobs) override {
    learn();
    foresights_.clear();
    for (const SimulatedJob* job : jobs) {
      classes_.try_emplace(&job->application());
      seen_.try_emplace(job);
      foresights_.emplace(job, job->foresight());
    }
  }

  std::uint32_t most_gpus(const SimulatedJob& job) const override {
    return std::min({std::max(2 * foresights_.at(&job).most_gpus(), 1U), shape().gpus(),
                     job.application().largest_gpus()});
  }

  void weigh(double now, const std::vector<const SimulatedJob*>& jobs,
             std::vector<JobState>& states) const override {
    for (std::size_t j = 0; j < jobs.size(); ++j) states[j].left = left_of(*jobs[j], now);
    weigh_by_class(states);
  }

  /// GPU-seconds, so far as anything is known of them.
  virtual std::optional<double> left_of(const SimulatedJob& job, double now) const {
    return classes_.at(&job.application()).service_left(job.service(now));
  }

  SizeSpeed speed(const SimulatedJob& job, std::uint32_t gpus) override {
    const double perfect = gpus;
    const Foresight& foresight = foresights_.at(&job);
    const auto noise = job.foreseen_noise();
    if (!foresight.any() || !noise) return {gpus, 0, perfect, perfect};
    const GpuLayout layout = packed_layout(gpus, shape().gpus_per_node);
    const double per_s =
        tables_[&job].at(foresight.record(), *noise, job.application().limits(), layout);
    return {gpus, 0, per_s, per_s / foresight.excess(layout)};
  }

 private:
  /// What was told of a job to its class.
  struct Told {
    std::size_t samples = 0;
    bool noise = false;
    bool finished = false;
  };

  void learn() {
    for (auto& [job, told] : seen_) {
      JobClass& own = classes_[&job->application()];
      const auto& samples = job->speed().samples();
      for (; told.samples < samples.size(); ++told.samples) own.steps.add(samples[told.samples]);
      if (!told.noise && job->noise()) own.note_first_noise(*job->noise());
      told.noise = job->noise().has_value();
      if (!told.finished && job->is_done()) own.note_finished(job->service(job->finish_s()));
      told.finished = job->is_done();
    }
  }

  std::map<const Application*, JobClass> classes_;
  std::map<const SimulatedJob*, Told> seen_;
  std::map<const SimulatedJob*, Foresight> foresights_;
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
  /// On one GPU with the smallest batch, to compare jobs of different programs.
  std::optional<double> left_of(const SimulatedJob& job, double now) const override {
    const double left = job.progress_after(job.application().epochs()) - job.progress(now);
    return left * smallest_step_s(job.application());
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
