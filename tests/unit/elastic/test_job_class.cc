// SPDX-License-Identifier: Apache-2.0
// What jobs of a class know of one another.
#include <criterion/criterion.h>

#include <cmath>
#include <limits>

#include "elastic/policy/job_class.h"
#include "elastic/policy/objective.h"

using namespace bellows;

TestSuite(seen_steps, .timeout = 20);
TestSuite(job_class, .timeout = 20);
TestSuite(foresight, .timeout = 60);

namespace {

const StepTime kTruth{.compute_constant = 0.02,
                      .compute_per_sample = 0.001,
                      .between_nodes = 0.2,
                      .between_nodes_per_rank = 0.01,
                      .inside_node = 0.05,
                      .inside_node_per_rank = 0.005,
                      .gamma = 1.2};

constexpr GpuLayout kLayouts[] = {{1, 1}, {1, 2}, {1, 4}, {2, 8}};

StepSample step(const GpuLayout& layout, std::uint32_t local, double times = 1) {
  return {layout, local, times * kTruth.compute_s(local), times * kTruth.step_s(layout, local, 1)};
}

JobClass seen_everywhere() {
  JobClass of_class;
  for (const GpuLayout& layout : kLayouts)
    for (const std::uint32_t local : {16u, 64u}) of_class.steps.add(step(layout, local));
  return of_class;
}

double foreseen_s(const Foresight& foresight, const GpuLayout& layout, std::uint32_t local) {
  return foresight.excess(layout) * foresight.model().step_s(layout, local, 1);
}

double off(double got, double want) { return std::abs(got / want - 1); }

}  // namespace

Test(seen_steps, are_means_in_which_later_ones_count_more) {
  SeenSteps seen;
  cr_expect(seen.empty() && seen.most_local() == 0);
  cr_expect(!seen.add({{1, 2}, 8, 0, 1.0}));
  cr_expect(seen.add({{1, 2}, 8, 0, 2.0}) == 1.0, "the mean before");
  for (int i = 0; i < 40; ++i) seen.add({{1, 2}, 8, 0, 2.0});
  cr_assert(seen.samples().size() == 1);
  cr_expect(off(seen.samples()[0].step_s, 2) < 1e-3);
  cr_expect(!seen.add({{1, 2}, 8, 0, -1}) && !seen.add({{0, 0}, 8, 0, 1}));
  cr_expect(seen.samples().size() == 1 && seen.most_local() == 8);
}

Test(seen_steps, are_bounded) {
  SeenSteps seen;
  for (std::uint32_t local = 1; local <= 1000; ++local) seen.add({{1, 1}, local, 0, 1.0});
  cr_expect(seen.samples().size() == 64);
  cr_expect(seen.most_local() == 1000, "the oldest are forgotten");
}

Test(seen_steps, the_count_of_models_tells_them_apart) {
  SeenSteps seen;
  seen.add({{1, 1}, 8, 0, 1.0});
  (void)seen.record().model();
  const auto first = seen.record().models();
  for (int i = 0; i < 10; ++i) seen.add({{1, 1}, 8, 0, 2.0});
  (void)seen.record().model();
  cr_expect(seen.record().models() > first);
}

Test(job_class, foresees_what_is_left_from_those_that_took_longer) {
  JobClass of_class;
  cr_expect(!of_class.service_left(0), "none has finished");
  for (const double service : {100.0, 200.0, 600.0}) of_class.note_finished(service);
  of_class.note_finished(std::numeric_limits<double>::quiet_NaN());
  of_class.note_finished(-5);
  cr_expect(*of_class.service_left(0) == 300);
  cr_expect(*of_class.service_left(150) == 250);
  cr_expect(*of_class.service_left(600) == 60, "a tenth again");
  for (int i = 0; i < 64; ++i) of_class.note_finished(1000);
  cr_expect(*of_class.service_left(0) == 1000, "the oldest are forgotten");
}

Test(job_class, keeps_a_mean_of_first_noises) {
  JobClass of_class;
  cr_expect(!of_class.first_noise());
  for (int i = 0; i < 40; ++i) of_class.note_first_noise({1, 2});
  for (int i = 0; i < 40; ++i) of_class.note_first_noise({2, 1});
  cr_expect(off(of_class.first_noise()->squared_norm, 2) < 1e-3);
  cr_expect(off(of_class.first_noise()->variance, 1) < 1e-3);
}

Test(foresight, of_a_job_without_a_class_is_its_own) {
  SpeedRecord own;
  const JobClass empty;
  cr_expect(!Foresight(own, nullptr).any() && !Foresight(own, &empty.steps.record()).any());
  own.add(step({1, 2}, 16));
  const Foresight foresight(own, &empty.steps.record());
  cr_expect(foresight.any() && !foresight.by_class() && foresight.most_gpus() == 2);
  cr_expect(off(foreseen_s(foresight, {1, 2}, 16), step({1, 2}, 16).step_s) < 1e-6);
}

Test(foresight, of_a_new_job_is_its_classes) {
  const JobClass of_class = seen_everywhere();
  const SpeedRecord own;
  const Foresight foresight(own, &of_class.steps.record());
  cr_assert(foresight.any() && foresight.by_class());
  cr_expect(foresight.most_gpus() == 8, "it need not find its way there by doubling");
  for (const GpuLayout& layout : kLayouts)
    cr_expect(off(foreseen_s(foresight, layout, 64), step(layout, 64).step_s) < 0.05, "%u GPUs",
              layout.gpus);
}

Test(foresight, a_slower_job_is_slower_by_as_much_where_it_was_not_seen) {
  const JobClass of_class = seen_everywhere();
  SpeedRecord own;
  own.add(step({1, 1}, 16, 3));
  const Foresight foresight(own, &of_class.steps.record());
  cr_assert(foresight.by_class());
  cr_expect(off(foreseen_s(foresight, {2, 8}, 64), step({2, 8}, 64, 3).step_s) < 0.1);
}

Test(foresight, what_a_job_has_measured_comes_first) {
  const JobClass of_class = seen_everywhere();
  SpeedRecord own;
  own.add(step({1, 1}, 16));
  own.add(step({1, 4}, 16, 1.3));
  const Foresight foresight(own, &of_class.steps.record());
  cr_assert(foresight.by_class());
  cr_expect(off(foreseen_s(foresight, {1, 4}, 16), step({1, 4}, 16, 1.3).step_s) < 1e-6);
}

Test(foresight, a_class_of_another_kind_is_left_out) {
  const JobClass of_class = seen_everywhere();
  SpeedRecord own;
  own.add(step({1, 1}, 16));
  own.add(step({1, 4}, 16, 5));
  const Foresight foresight(own, &of_class.steps.record());
  cr_expect(!foresight.by_class());
  cr_expect(foresight.most_gpus() == 4, "nor is it believed how far its jobs went");
}
