// SPDX-License-Identifier: Apache-2.0
// What jobs are worth at their sizes, as the optimizer then divides.
#include <criterion/criterion.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "elastic/policy/objective.h"

using namespace bellows;

TestSuite(objective, .timeout = 20);

namespace {

JobState scaling(double each_gpu, std::uint32_t most, std::uint32_t now) {
  JobState job;
  for (std::uint32_t gpus = 1; gpus <= most; ++gpus) {
    const double speed = 1 + each_gpu * (gpus - 1);
    job.sizes.push_back({gpus, 64, speed, speed});
  }
  job.now = now;
  job.age_s = 3600;
  return job;
}

std::vector<std::uint32_t> divide(const std::vector<JobState>& jobs, const ObjectiveTerms& terms,
                                  std::uint32_t gpus) {
  auto curve = TenantCurve::of(value_jobs(jobs, terms), gpus);
  cr_assert(curve.ok(), "%s", curve.ok() ? "" : curve.error().text.c_str());
  return curve->divide(std::min(gpus, curve->most()));
}

using Sizes = std::vector<std::uint32_t>;

}  // namespace

Test(objective, throughput_feeds_who_scales_and_fair_feeds_all) {
  const std::vector<JobState> jobs = {scaling(1, 8, 0), scaling(0.1, 8, 0), scaling(1, 8, 0)};
  cr_expect(divide(jobs, {.objective = Objective::throughput}, 2) != (Sizes{0, 0, 0}));
  const Sizes fair = divide(jobs, {}, 8);
  cr_expect(fair[0] > fair[1] && fair[1] >= 1 && fair[2] > fair[1]);
  cr_expect(divide(jobs, {}, 3) == (Sizes{1, 1, 1}));
}

Test(objective, a_restart_has_its_price) {
  std::vector<JobState> jobs = {scaling(0.7, 4, 2), scaling(0.7, 4, 1)};
  cr_expect(divide(jobs, {.restart_s = 0}, 4) == (Sizes{2, 2}));
  cr_expect(divide(jobs, {.restart_s = 3000}, 4) == (Sizes{2, 1}), "doubling does not pay it off");
  cr_expect(divide(jobs, {.restart_s = 250}, 4) == (Sizes{2, 2}), "within three restarts it does");
  jobs[1].restarts = 13;
  cr_expect(divide(jobs, {.restart_s = 250}, 4)[1] == 1, "it has computed for 100 s in all");
}

Test(objective, a_restart_pays_off_over_what_is_left) {
  std::vector<JobState> jobs = {scaling(0.7, 4, 2), scaling(0.7, 4, 1)};
  cr_expect(divide(jobs, {.restart_s = 250}, 4) == (Sizes{2, 2}));
  jobs[1].left = 100;
  cr_expect(divide(jobs, {.restart_s = 250}, 4)[1] == 1, "it ends soon");
  jobs[1].age_s = 0;
  jobs[1].left = 1e6;
  cr_expect(divide(jobs, {.restart_s = 250}, 4) == (Sizes{2, 2}), "it is young and has much to do");
}

Test(objective, of_a_class_the_oldest_goes_first) {
  std::vector<JobState> jobs = {scaling(0.9, 8, 4), scaling(0.9, 8, 4), scaling(0.9, 8, 4)};
  jobs[0].service = 3000;
  jobs[1].service = 1000;
  jobs[2].service = 3000;
  jobs[2].job_class = 1;
  weigh_by_class(jobs);
  cr_expect(jobs[0].weight == 1.5 && jobs[1].weight == 0.5);
  cr_expect(jobs[2].weight == 1, "alone in its class");
  const Sizes sizes = divide(jobs, {}, 12);
  cr_expect(sizes[0] > 4 && sizes[1] < 4 && sizes[1] >= 1);
  jobs.assign(40, scaling(1, 8, 1));
  jobs[0].service = 1000;
  weigh_by_class(jobs);
  cr_expect(jobs[0].weight == 2 && jobs[1].weight == 0.1, "within bounds");
  jobs[0].service = 0;
  jobs[0].weight = 1;
  weigh_by_class(jobs);
  cr_expect(jobs[0].weight == 1, "none has run");
}

Test(objective, who_has_little_left_goes_first) {
  std::vector<JobState> jobs = {scaling(0.9, 8, 4), scaling(0.9, 8, 4), scaling(0.9, 8, 4)};
  for (std::uint32_t j = 0; j < 3; ++j) jobs[j].job_class = j;
  jobs[0].left = 100;
  jobs[1].left = 900;
  jobs[2].service = 2000;
  weigh_by_class(jobs);
  cr_expect(std::abs(jobs[0].weight / jobs[1].weight - 3) < 1e-9);
  cr_expect(jobs[0].weight > 1 && jobs[2].weight < jobs[1].weight,
            "of a class of which none has finished, it is as long again as its longest");
  const Sizes sizes = divide(jobs, {}, 12);
  cr_expect(sizes[0] > sizes[1] && sizes[1] >= sizes[2] && sizes[2] >= 1);
  jobs[0].left = 1e-9;
  jobs[1].left = 1e15;
  weigh_by_class(jobs);
  cr_expect(jobs[0].weight <= 20, "within what a weight may be");
}

Test(objective, who_waits_is_not_held_back_by_its_weight) {
  std::vector<JobState> jobs = {scaling(1, 1, 1), scaling(1, 1, 0)};
  jobs[0].weight = 2;
  jobs[1].weight = 0.1;
  cr_expect(divide(jobs, {.restart_s = 30}, 1) == (Sizes{1, 0}), "nor does it push others out");
  jobs[1].waited_s = 3600;
  cr_expect(divide(jobs, {.restart_s = 30}, 1) == (Sizes{0, 1}));
}

Test(objective, who_waits_beyond_patience_takes_the_place_of_who_runs) {
  std::vector<JobState> jobs = {scaling(1, 1, 1), scaling(1, 1, 0)};
  jobs[1].waited_s = 3599;
  cr_expect(divide(jobs, {.restart_s = 30}, 1) == (Sizes{1, 0}));
  jobs[1].waited_s = 3600;
  cr_expect(divide(jobs, {.restart_s = 30}, 1) == (Sizes{0, 1}));
}

Test(objective, nonsense_is_harmless) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const double nonsense : {kNaN, kInfinity, -kInfinity, -1.0, 0.0, 1e300, 1e-300})
    for (const Objective objective : {Objective::throughput, Objective::goodput, Objective::fair}) {
      std::vector<JobState> jobs = {scaling(1, 4, 2), scaling(1, 4, 1)};
      jobs[0].sizes[1].progress_per_s = jobs[0].sizes[1].samples_per_s = nonsense;
      const Sizes sizes = divide(jobs, {.objective = objective, .restart_s = 30}, 4);
      cr_expect(sizes[0] + sizes[1] <= 4 && sizes[1] >= 1);
    }
}

Test(objective, thousands_of_jobs_stay_exact) {
  const std::vector<JobState> jobs(10000, scaling(0.7, 4, 1));
  const std::vector<ElasticJob> values = value_jobs(jobs, {.restart_s = 30});
  cr_expect(TenantCurve::of(values, 64).ok());
  cr_expect(values[0].sizes[1].value > values[0].sizes[0].value - 1000);
  cr_expect(values[0].sizes[0].value > values[0].idle_value);
}
