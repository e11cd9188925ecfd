// SPDX-License-Identifier: Apache-2.0
#include "elastic/policy/objective.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>

namespace bellows {
namespace {

// Of `fair`. Towards 0 it becomes faster in all and less fair.
constexpr double kExponent = -0.5;
// The cost of waiting, where running at the smallest size costs 1: all are admitted that can be.
constexpr double kWaiting = 20;
// A plan lasts for so many restarts at least: where they are dear, it is changed seldom.
constexpr double kRestartsOfPlan = 3;
// Below this a job has no restart to fear for: it would never be seen at any other size.
constexpr double kYoung = 60;  // seconds

// Of a job beside all others, by what is left of them.
constexpr double kMostByRest = 10;
// Of a job beside others of its class. A new one must still be seen at several sizes.
constexpr double kLeastWeight = 0.1;
constexpr double kMostWeight = 2;

struct Values {
  std::vector<double> of_sizes;
  double idle = 0;
};

double speed_of(const SizeSpeed& size, Objective objective) {
  return objective == Objective::throughput ? size.samples_per_s : size.progress_per_s;
}

// Reports may say anything, and what they say must fit into the fixed point.
double bounded(double times) { return times > 1e-3 ? std::min(times, 1e4) : 1e-3; }

// What is left of a time after a restart in it.
double rest_after_restart(const JobState& job, const ObjectiveTerms& terms) {
  const double plan_s = std::max(terms.horizon_s, kRestartsOfPlan * terms.restart_s);
  // Restarting tells nothing of how long a job computes.
  const double restarted_s = (job.restarts + 1) * terms.restart_s;
  const double computes_s =
      job.left ? *job.left / std::max(1U, job.now) : std::max(job.age_s - restarted_s, 0.0);
  const double lasts = std::min(computes_s + kYoung, plan_s);
  return lasts / (lasts + terms.restart_s);
}

Values values_of(const JobState& job, const ObjectiveTerms& terms) {
  Values values;
  const bool is_fair = terms.objective == Objective::fair;
  double smallest = 0;
  for (const SizeSpeed& size : job.sizes) {
    double speed = speed_of(size, terms.objective);
    if (smallest <= 0) smallest = speed;
    if (job.now > 0 && size.gpus != job.now) speed *= rest_after_restart(job, terms);
    const double times = bounded(speed / smallest);
    values.of_sizes.push_back(job.weight * (is_fair ? -std::pow(times, kExponent) : times));
  }
  // What running at the smallest size gains is the same for all: the bound on waiting holds
  // whatever they weigh, and where not all fit, none has to give way for its weight.
  if (is_fair)
    values.idle = -job.weight - kWaiting * (1 + std::floor(job.waited_s / terms.patience_s));
  return values;
}

}  // namespace

void weigh_by_class(std::vector<JobState>& jobs) {
  struct Class {
    double service = 0;
    double longest = 0;
    int jobs = 0;
  };
  std::map<std::uint32_t, Class> classes;
  for (const JobState& job : jobs) {
    Class& all = classes[job.job_class];
    all.service += job.service;
    all.longest = std::max(all.longest, job.service);
    ++all.jobs;
  }
  // A second is less than any job takes.
  const auto left = [&](const JobState& job) {
    return std::max(1.0, job.left.value_or(classes[job.job_class].longest));
  };
  double sum = 0;
  for (const JobState& job : jobs) sum += left(job);
  for (JobState& job : jobs) {
    const Class& all = classes[job.job_class];
    const double mean = sum / static_cast<double>(jobs.size());
    job.weight = std::min(std::sqrt(mean / left(job)), kMostByRest);
    if (all.service > 0)
      job.weight *= std::clamp(job.service / (all.service / all.jobs), kLeastWeight, kMostWeight);
  }
}

std::vector<ElasticJob> value_jobs(const std::vector<JobState>& jobs, const ObjectiveTerms& terms) {
  std::vector<Values> values;
  double sum = 0;
  for (const JobState& job : jobs) {
    values.push_back(values_of(job, terms));
    double largest = std::abs(values.back().idle);
    for (const double value : values.back().of_sizes) largest = std::max(largest, std::abs(value));
    sum += largest;
  }
  // Each value is lowered by 1 at most for a move.
  const double room = CurveRows::kLargest - 2.0 * static_cast<double>(jobs.size());
  const double unit = sum > 0 ? 0.999 * room / sum : 0;
  std::vector<ElasticJob> elastic(jobs.size());
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    elastic[j].now = jobs[j].now;
    elastic[j].idle_value = static_cast<std::int32_t>(values[j].idle * unit);
    for (std::size_t s = 0; s < jobs[j].sizes.size(); ++s)
      elastic[j].sizes.push_back({jobs[j].sizes[s].gpus, jobs[j].sizes[s].batch,
                                  static_cast<std::int32_t>(values[j].of_sizes[s] * unit)});
  }
  return elastic;
}

}  // namespace bellows
