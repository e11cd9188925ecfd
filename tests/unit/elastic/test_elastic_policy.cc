// SPDX-License-Identifier: Apache-2.0
// What a job's steps are known to take, and what a batch is worth.
#include <criterion/criterion.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "elastic/policy/goodput.h"
#include "elastic/policy/speed_record.h"
#include "elastic/policy/step_time.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;

TestSuite(step_time, .timeout = 20);
TestSuite(speed_record, .timeout = 20);
TestSuite(goodput, .timeout = 20);

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

StepSample exact(const StepTime& time, const GpuLayout& layout, std::uint32_t local) {
  return {layout, local, time.compute_s(local), time.step_s(layout, local, 1)};
}

std::vector<StepSample> exact(const StepTime& time, const std::vector<GpuLayout>& layouts) {
  std::vector<StepSample> samples;
  for (const GpuLayout& layout : layouts)
    for (const std::uint32_t local : {8u, 32u, 128u}) samples.push_back(exact(time, layout, local));
  return samples;
}

StepTime fit(const std::vector<StepSample>& samples) {
  auto model = fit_step_time(samples);
  cr_assert(model.ok(), "%s", model.ok() ? "" : model.error().text.c_str());
  return *model;
}

const StepTime kTypical{.compute_constant = 0.05,
                        .compute_per_sample = 0.002,
                        .between_nodes = 0.08,
                        .between_nodes_per_rank = 0.001,
                        .inside_node = 0.02,
                        .inside_node_per_rank = 0.0005,
                        .gamma = 1.2};

/// By what part two times differ.
double off(double got, double want) { return std::abs(got / want - 1); }

const std::vector<GpuLayout> kSeen = {{1, 1}, {1, 2}, {1, 4}, {2, 4}, {2, 8}, {4, 16}, {8, 32}};
const std::vector<GpuLayout> kBetween = {{1, 3}, {2, 2}, {2, 6}, {3, 12}, {6, 24}};

/// A step of this model, with what is far from a step's usual length.
bool gives_a_number(const StepTime& model) {
  for (const GpuLayout& layout : {GpuLayout{1, 1}, {1, 4}, {2, 2}, {16, 64}})
    for (const std::uint32_t local : {1u, 64u, 1u << 20}) {
      const double step_s = model.step_s(layout, local, 2);
      if (!std::isfinite(step_s) || step_s <= 0) return false;
    }
  return true;
}

BatchLimits some_limits(std::mt19937& random) {
  const auto up_to = [&random](std::uint32_t most) {
    return static_cast<std::uint32_t>(random() % (most + 1));
  };
  BatchLimits limits;
  limits.submitted = 1 + up_to(200);
  limits.smallest = limits.submitted + up_to(50);
  limits.largest = limits.smallest + up_to(2000);
  limits.smallest_local = 1 + up_to(9);
  limits.largest_local = limits.smallest_local + up_to(100);
  return limits;
}

/// The best of 50 batches, by trying all.
double brute_goodput(const StepTime& time, const GradientNoise& noise, const BatchLimits& limits,
                     const GpuLayout& layout) {
  const double least = std::max(limits.smallest, layout.gpus * limits.smallest_local);
  double best = 0;
  for (int i = 0; i < 50 && least <= limits.largest; ++i) {
    const double wanted = least * std::pow(limits.largest / least, i / 49.0);
    const Batch batch = lay_out(limits, layout, static_cast<std::uint64_t>(wanted + 1e-6));
    const std::uint64_t samples = batch.in_all(layout);
    if (batch.local < limits.smallest_local || samples < limits.smallest) continue;
    const double scale = static_cast<double>(samples) / limits.submitted;
    const double step_s = time.step_s(layout, batch.local, batch.passes);
    best = std::max(best, step_gain(noise, scale) / step_s);
  }
  return best;
}

Goodput best_of(const BatchLimits& limits, const GradientNoise& noise, const GpuLayout& layout) {
  return best_goodput(possible_batches(kTypical, limits, layout), noise);
}

}  // namespace

Test(step_time, counts_passes_and_overlap) {
  const StepTime time{1, 0.1, 8, 1, 3, 0.5, 1};
  cr_expect(off(time.compute_s(10), 2) < 1e-12);
  cr_expect(off(time.exchange_s({1, 2}), 3) < 1e-12);
  cr_expect(off(time.exchange_s({1, 6}), 5) < 1e-12);
  cr_expect(off(time.exchange_s({2, 2}), 8) < 1e-12);
  cr_expect(off(time.exchange_s({3, 6}), 12) < 1e-12);
  cr_expect(off(time.step_s({1, 2}, 10, 1), 5) < 1e-12, "without overlap it is the sum");
  cr_expect(off(time.step_s({1, 2}, 10, 3), 9) < 1e-12, "only the last pass exchanges");
  cr_expect(off(time.step_s({1, 1}, 10, 2), 4) < 1e-6, "one rank exchanges nothing");
  StepTime overlaps = time;
  overlaps.gamma = 2;
  cr_expect(off(overlaps.step_s({1, 2}, 10, 1), std::sqrt(2.0 * 2 + 3 * 3)) < 1e-12);
}

Test(step_time, fit_finds_what_the_samples_come_from) {
  std::vector<StepTime> truths = {kTypical, kTypical, kTypical, kTypical};
  truths[1].gamma = 1;
  truths[2] = {0.001, 0.0001, 0.004, 0.0001, 0.001, 0.00002, 1};  // a small network
  truths[3] = {0.5, 0.1, 0.3, 0.01, 0.05, 0.002, 1.1};            // a large one
  for (const StepTime& truth : truths) {
    const StepTime model = fit(exact(truth, kSeen));
    for (const auto* layouts : {&kSeen, &kBetween})
      for (const GpuLayout& layout : *layouts)
        for (const std::uint32_t local : {8u, 16u, 50u, 128u}) {
          const double error = off(model.step_s(layout, local, 1), truth.step_s(layout, local, 1));
          cr_expect(error < 0.01, "truth %zu, %u GPUs of %u nodes, %u samples: %g off",
                    static_cast<std::size_t>(&truth - truths.data()), layout.gpus, layout.nodes,
                    local, error);
        }
  }
}

Test(step_time, fit_may_begin_at_another_model) {
  const auto samples = exact(kTypical, kSeen);
  StepTime flat = fit(exact(kTypical, {{1, 1}}));
  StepTime odd = kTypical;
  odd.compute_constant = 0;
  odd.between_nodes = 1e30;
  odd.gamma = 99;
  for (const StepTime& start : {flat, odd, kTypical}) {
    const auto model = fit_step_time(samples, start);
    cr_assert(model.ok());
    for (const StepSample& sample : samples)
      cr_expect(off(model->step_s(sample.layout, sample.local_batch, 1), sample.step_s) < 0.01);
  }
}

Test(step_time, what_was_not_seen_seems_to_scale) {
  const StepTime alone = fit(exact(kTypical, {{1, 1}}));
  for (const GpuLayout& layout : {GpuLayout{1, 2}, {1, 8}, {2, 8}, {16, 64}})
    cr_expect(off(alone.step_s(layout, 32, 1), kTypical.step_s({1, 1}, 32, 1)) < 0.01);

  const StepTime pair = fit(exact(kTypical, {{1, 1}, {1, 2}}));
  cr_expect(off(pair.step_s({1, 8}, 32, 1), kTypical.step_s({1, 2}, 32, 1)) < 0.01,
            "ranks after the second cost nothing");

  const StepTime apart = fit(exact(kTypical, {{1, 1}, {2, 2}}));
  cr_expect(off(apart.step_s({1, 4}, 32, 1), kTypical.step_s({1, 1}, 32, 1)) < 0.01);

  const StepTime one_batch = fit({exact(kTypical, {1, 1}, 32)});
  cr_expect(off(one_batch.compute_s(32), kTypical.compute_s(32)) < 0.01);
  cr_expect(one_batch.compute_s(64) > one_batch.compute_s(32));
  cr_expect(one_batch.compute_s(64) < 2 * one_batch.compute_s(32));
}

Test(step_time, unseen_nodes_are_not_faster_than_one) {
  for (const auto& layouts : {std::vector<GpuLayout>{{1, 2}}, {{1, 4}}, {{1, 1}, {1, 2}, {1, 8}}})
    for (const double inside : {0.001, 0.05, 2.0}) {
      StepTime truth = kTypical;
      truth.inside_node = inside;
      truth.inside_node_per_rank = inside / 3;
      const StepTime model = fit(exact(truth, layouts));
      for (const std::uint32_t gpus : {2u, 4u, 16u})
        cr_expect(model.exchange_s({2, gpus}) > model.exchange_s({1, gpus}));
    }
}

Test(step_time, refuses_what_can_not_be) {
  const StepSample good{{2, 4}, 8, 0.1, 0.2};
  cr_expect(check_sample(good).ok());
  std::vector<StepSample> bad(14, good);
  bad[0].compute_s = kNaN;
  bad[1].step_s = kNaN;
  bad[2].compute_s = -0.1;
  bad[3].step_s = 0;
  bad[4].step_s = kInfinity;
  bad[5].compute_s = bad[5].step_s = kInfinity;
  bad[6].compute_s = 0.3;
  bad[7].layout = {0, 0};
  bad[8].layout = {1, 0};
  bad[9].layout = {4, 2};
  bad[10].local_batch = 0;
  bad[11].compute_s = -kInfinity;
  bad[12].compute_s = 1e-300;
  bad[13].step_s = 1e300;
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const Status status = check_sample(bad[i]);
    cr_expect(!status && status.error().kind == ErrorKind::invalid, "bad sample %zu", i);
    cr_expect(!fit_step_time({good, bad[i]}), "bad sample %zu", i);
  }
  const auto none = fit_step_time({});
  cr_expect(!none && has(none.error().text, "no steps were measured"));
}

Test(step_time, odd_samples_never_give_something_else_than_a_number) {
  std::vector<StepSample> odd;
  for (const double compute_s : {5e-324, 1e-310, 1e-300, 1e-8, 1e-3, 1e4, 1e9, 1e300, 1.5e308})
    for (const double longer : {1.0, 1.1, 1e3, 1e12})
      for (const std::uint32_t local : {1u, 32u, UINT32_MAX})
        for (const GpuLayout& layout : {GpuLayout{1, 1}, {1, 2}, {7, 4096}, {1, UINT32_MAX}})
          odd.push_back({layout, local, compute_s, compute_s * longer});
  std::size_t fitted = 0;
  for (std::size_t i = 0; i < odd.size(); ++i)
    for (const auto& samples : {std::vector<StepSample>{odd[i]},
                                {odd[i], odd[i]},
                                {odd[i], {{1, 4}, 16, 0.1, 0.2}},
                                {odd[i], odd[(i * 31 + 7) % odd.size()]}}) {
      const auto model = fit_step_time(samples);
      if (!model) continue;
      ++fitted;
      cr_expect(gives_a_number(*model), "sample %zu", i);
    }
  cr_expect(fitted > 100);
}

Test(speed_record, keeps_the_first_of_two) {
  SpeedRecord record;
  cr_expect(!record.model() && record.most_gpus() == 0);
  cr_expect(record.add({{1, 2}, 8, 0.1, 0.2}));
  cr_expect(!record.add({{1, 2}, 8, 5, 9}));
  cr_expect(record.samples().size() == 1 && record.samples()[0].step_s == 0.2);
  cr_expect(record.add({{1, 2}, 16, 0.15, 0.25}), "another local batch");
  cr_expect(record.add({{2, 2}, 8, 0.1, 0.3}), "another number of nodes");
  cr_expect(record.samples().size() == 3 && record.most_gpus() == 2);
}

Test(speed_record, leaves_out_what_can_not_be) {
  SpeedRecord record;
  cr_expect(!record.add({{1, 64}, 8, kNaN, 1}));
  cr_expect(!record.add({{2, 64}, 8, 2, 1}));
  cr_expect(record.samples().empty() && record.most_gpus() == 0 && !record.model());
  cr_expect(record.add({{1, 1}, 8, 0.1, 0.1}),
            "a wrong sample does not take the place of a right one");
}

Test(speed_record, its_model_follows_the_samples) {
  SpeedRecord record;
  record.add(exact(kTypical, {1, 1}, 8));
  cr_expect(off(record.model()->compute_s(8), kTypical.compute_s(8)) < 0.01);
  for (const StepSample& sample : exact(kTypical, kSeen)) record.add(sample);
  cr_expect(off(record.model()->step_s({3, 12}, 64, 1), kTypical.step_s({3, 12}, 64, 1)) < 0.01);
  cr_expect(record.most_gpus() == 32);
}

Test(speed_record, its_model_stays_while_it_foresees) {
  SpeedRecord record;
  for (const StepSample& sample : exact(kTypical, {{1, 1}, {1, 2}, {1, 4}})) record.add(sample);
  const StepTime first = *record.model();
  cr_expect(record.models() == 1 && first.knows({1, 1}) && first.knows({1, 8}));
  cr_expect(!first.knows({2, 2}));
  const StepSample near = exact(first, {1, 3}, 64);
  record.add({near.layout, near.local_batch, near.compute_s * 1.01, near.step_s * 1.01});
  cr_expect(record.model()->step_s({1, 3}, 64, 1) == first.step_s({1, 3}, 64, 1));
  cr_expect(record.models() == 1);
  record.add({near.layout, 65, near.compute_s * 1.5, near.step_s * 1.5});
  record.model();
  cr_expect(record.models() == 2);
  record.add(exact(*record.model(), {2, 2}, 8));
  cr_expect(record.model()->knows({2, 2}) && record.models() == 3,
            "the first sample across nodes is news, whatever it says");
}

Test(speed_record, excess_is_what_the_model_can_not_follow) {
  SpeedRecord record;
  cr_expect(record.excess({1, 2}) == 1);
  for (const StepSample& sample : exact(kTypical, kSeen)) record.add(sample);
  StepSample slow = exact(kTypical, {5, 20}, 32);
  slow.step_s *= 1.5;
  record.add(slow);
  const double foreseen = record.model()->step_s({5, 20}, 32, 1);
  cr_expect(off(foreseen * record.excess({5, 20}), slow.step_s) < 1e-9);
  cr_expect(record.excess({5, 20}) > 1.1);
  cr_expect(record.excess({6, 24}) == 1, "nothing was seen there");
}

Test(goodput, gain_is_between_one_and_the_scale) {
  for (const double norm : {0.0, 1e-300, 1e-9, 1.0, 50.0, 1e300})
    for (const double variance : {0.0, 1e-300, 1e-9, 1.0, 50.0, 1e300})
      for (const double scale : {1.0, 1.5, 8.0, 1e6}) {
        const double gain = step_gain({norm, variance}, scale);
        cr_expect(gain >= 1 - 1e-12 && gain <= scale * (1 + 1e-12), "%g %g %g", norm, variance,
                  scale);
      }
  cr_expect(off(step_gain({1, 1}, 2), 4.0 / 3) < 1e-12);
  cr_expect(off(step_gain({0, 1}, 8), 8) < 1e-12, "pure noise: more samples are all gain");
  cr_expect(off(step_gain({1, 0}, 8), 1) < 1e-12, "no noise: more samples are no gain");
}

Test(goodput, lays_out_a_batch) {
  const BatchLimits limits{
      .submitted = 64, .smallest = 64, .largest = 1000, .smallest_local = 4, .largest_local = 50};
  cr_expect(lay_out(limits, {1, 4}, 128) == (Batch{32, 1}));
  cr_expect(lay_out(limits, {1, 3}, 128) == (Batch{43, 1}), "at least the batch");
  cr_expect(lay_out(limits, {1, 2}, 128) == (Batch{32, 2}), "what does not fit takes two passes");
  cr_expect(lay_out(limits, {1, 2}, 500) == (Batch{50, 5}));
  cr_expect(lay_out(limits, {2, 7}, 1000) == (Batch{47, 3}), "never above the largest");
  const BatchLimits fits{
      .submitted = 64, .smallest = 64, .largest = 1000, .smallest_local = 4, .largest_local = 200};
  cr_expect(lay_out(fits, {1, 1}, 64) == (Batch{64, 1}));
  cr_expect(lay_out(fits, {1, 1}, 66) == (Batch{33, 2}), "else the noise can't be measured");
  cr_expect(lay_out(fits, {1, 2}, 66) == (Batch{33, 1}));
}

Test(goodput, layouts_keep_to_the_limits) {
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    const BatchLimits limits = some_limits(random);
    const GpuLayout layout{1, 1 + static_cast<std::uint32_t>(random() % 16)};
    const std::uint64_t wanted =
        limits.smallest + random() % (limits.largest - limits.smallest + 1);
    const Batch batch = lay_out(limits, layout, wanted);
    const std::uint64_t samples = batch.in_all(layout);
    cr_assert(samples <= limits.largest && batch.local <= limits.largest_local, "run %d", i);
    cr_assert(batch.passes >= 1, "run %d", i);
    if (layout.gpus == 1 && wanted > limits.submitted) cr_assert(batch.passes >= 2, "run %d", i);
    // It is less than asked for only where one sample more for each pass of each rank is too much.
    if (samples < wanted)
      cr_assert(samples + std::uint64_t{batch.passes} * layout.gpus > limits.largest, "run %d", i);
  }
}

Test(goodput, best_equals_brute_force_and_keeps_to_the_limits) {
  std::mt19937 random(5);
  int found = 0;
  for (int i = 0; i < 5000; ++i) {
    const BatchLimits limits = some_limits(random);
    const auto gpus = 1 + static_cast<std::uint32_t>(random() % 64);
    const GpuLayout layout{(gpus + 3) / 4, gpus};
    const GradientNoise noise{1, std::ldexp(1.0, static_cast<int>(random() % 20) - 8)};
    const Goodput best = best_of(limits, noise, layout);
    cr_assert(best.per_s == brute_goodput(kTypical, noise, limits, layout), "run %d", i);
    if (best.per_s == 0) continue;
    ++found;
    const std::uint64_t samples = best.batch.in_all(layout);
    cr_assert(samples >= limits.smallest && samples <= limits.largest, "run %d", i);
    cr_assert(best.batch.local >= limits.smallest_local, "run %d", i);
    cr_assert(best.batch.local <= limits.largest_local, "run %d", i);
  }
  cr_expect(found > 3000);
}

Test(goodput, there_is_none_where_ranks_are_too_many) {
  const BatchLimits limits{
      .submitted = 64, .smallest = 64, .largest = 256, .smallest_local = 8, .largest_local = 64};
  cr_expect(best_of(limits, {1, 1}, {8, 32}).per_s > 0);
  cr_expect(best_of(limits, {1, 1}, {9, 33}).per_s == 0);
  const BatchLimits odd{
      .submitted = 64, .smallest = 129, .largest = 129, .smallest_local = 8, .largest_local = 64};
  cr_expect(best_of(odd, {1, 1}, {1, 3}).batch == (Batch{43, 1}));
  cr_expect(best_of(odd, {1, 1}, {1, 2}).per_s == 0, "129 is odd");
}

Test(goodput, noise_makes_larger_batches_better) {
  const BatchLimits limits{
      .submitted = 64, .smallest = 64, .largest = 4096, .smallest_local = 8, .largest_local = 256};
  const Goodput quiet = best_of(limits, {1, 1e-3}, {2, 8});
  const Goodput noisy = best_of(limits, {1e-3, 1}, {2, 8});
  cr_expect(quiet.batch.in_all({2, 8}) == 64);
  cr_expect(noisy.batch.in_all({2, 8}) > 1000);
}
