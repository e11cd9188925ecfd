// SPDX-License-Identifier: Apache-2.0
// What bellowsd learns of a job's speed, and which batch follows from it.
#include <criterion/criterion.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "elastic/policy/job_speed.h"

using namespace bellows;

TestSuite(job_speed, .timeout = 60);

namespace {

const std::vector<std::uint32_t> kSizes = {1, 2, 4, 8};
constexpr std::uint32_t kPerNode = 4;
constexpr BatchRange kRange{64, 1024};

/// A training whose exchange is worth more samples in a step.
const StepTime kTruth{.compute_constant = 0.02,
                      .compute_per_sample = 0.001,
                      .between_nodes = 0.2,
                      .between_nodes_per_rank = 0.01,
                      .inside_node = 0.05,
                      .inside_node_per_rank = 0.005,
                      .gamma = 1.2};

double step_s(const GpuLayout& layout, std::uint64_t batch) {
  const auto local = static_cast<std::uint32_t>((batch + layout.gpus - 1) / layout.gpus);
  return kTruth.step_s(layout, local, 1);
}

JobSpeed seen(const std::vector<std::pair<std::uint32_t, std::uint64_t>>& gpus_and_batches) {
  JobSpeed speed;
  for (const auto& [gpus, batch] : gpus_and_batches) {
    const GpuLayout layout = packed_layout(gpus, kPerNode);
    speed.add(layout, batch, step_s(layout, batch));
  }
  return speed;
}

SizeSpeed at(const JobSpeed& speed, std::uint32_t gpus, std::uint32_t now = 0,
             const std::optional<BatchRange>& range = kRange) {
  for (const SizeSpeed& size : speed.at(kSizes, kPerNode, range, now))
    if (size.gpus == gpus) return size;
  cr_assert_fail("%u GPUs are missing", gpus);
  return {};
}

}  // namespace

Test(job_speed, of_a_job_that_says_nothing_is_perfect) {
  const JobSpeed speed;
  cr_expect(!speed.seen());
  cr_expect(at(speed, 8).progress_per_s / at(speed, 2).progress_per_s == 4);
  cr_expect(speed.most_to_try(3) == 6);
}

Test(job_speed, without_a_batch_is_in_steps) {
  JobSpeed speed;
  speed.add({1, 2}, 0, 0.05);
  speed.add({2, 8}, 0, 0.025);
  cr_expect(speed.most_to_try(2) == 16);
  cr_expect(at(speed, 2).progress_per_s == 20 && at(speed, 8).progress_per_s == 40);
  cr_expect(at(speed, 8).batch == 0);
}

Test(job_speed, is_what_was_measured_where_it_was_seen) {
  const JobSpeed speed = seen({{1, 64}, {2, 64}, {4, 64}, {8, 64}});
  for (const std::uint32_t gpus : kSizes) {
    const SizeSpeed size = at(speed, gpus, 0, std::nullopt);
    const double truth = 64 / step_s(packed_layout(gpus, kPerNode), 64);
    cr_expect(std::abs(size.samples_per_s / truth - 1) < 1e-6, "%u GPUs", gpus);
    cr_expect(size.batch == 64);
  }
}

Test(job_speed, follows_a_program_that_changes) {
  JobSpeed speed;
  for (int i = 0; i < 40; ++i) speed.add({1, 2}, 64, 1.0);
  (void)at(speed, 2);
  for (int i = 0; i < 40; ++i) speed.add({1, 2}, 64, 0.5);
  cr_expect(std::abs(at(speed, 2, 0, std::nullopt).samples_per_s / 128 - 1) < 0.05);
}

Test(job_speed, does_not_follow_chance_to_and_fro) {
  JobSpeed speed;
  const auto measure = [&speed](std::uint32_t gpus, double step) {
    for (int i = 0; i < 10; ++i) speed.add({1, gpus}, 64, step * (i % 2 == 0 ? 0.7 : 1.3));
  };
  measure(2, 1.0);
  measure(4, 0.9);
  cr_expect(at(speed, 4, 2, {}).progress_per_s < at(speed, 2, 2, {}).progress_per_s);
  cr_expect(at(speed, 2, 4, {}).progress_per_s < at(speed, 4, 4, {}).progress_per_s);
  measure(4, 0.3);
  cr_expect(at(speed, 4, 2, {}).progress_per_s > at(speed, 2, 2, {}).progress_per_s);
}

Test(job_speed, a_batch_changes_only_with_a_range_and_a_noise_scale) {
  JobSpeed speed = seen({{1, 64}, {4, 64}});
  for (const std::uint32_t gpus : kSizes) cr_expect(at(speed, gpus, 4).batch == 64);
  speed.note_noise_scale(1 << 20);
  for (const std::uint32_t gpus : kSizes) cr_expect(at(speed, gpus, 4, std::nullopt).batch == 64);
  cr_expect(at(speed, 4, 4).batch == 64, "not at the size that it has");
  cr_expect(at(speed, 8, 4).batch > 64);
}

Test(job_speed, a_noisy_gradient_is_worth_a_large_batch) {
  JobSpeed noisy = seen({{1, 64}, {1, 128}, {4, 128}});
  JobSpeed exact = noisy;
  noisy.note_noise_scale(1 << 20);
  exact.note_noise_scale(1);
  cr_expect(at(noisy, 8).batch == 1024, "as large as the memory of a GPU is known to hold");
  cr_expect(at(exact, 8).batch == 64, "more samples would bring nothing");
  cr_expect(at(noisy, 1).batch == 128);
}

Test(job_speed, no_rank_gets_more_samples_than_one_had_before) {
  JobSpeed speed = seen({{4, 256}});
  speed.note_noise_scale(1 << 20);
  for (const std::uint32_t gpus : {1u, 2u, 8u})
    cr_expect(at(speed, gpus, 4).batch <= 64 * gpus, "%u GPUs", gpus);
  cr_expect(at(speed, 1, 4).batch == 64);
}

Test(job_speed, stays_inside_the_range) {
  JobSpeed speed = seen({{4, 96}});
  speed.note_noise_scale(1 << 20);
  for (const BatchRange& range : {BatchRange{96, 96}, BatchRange{50, 97}, BatchRange{7, 7}})
    for (const SizeSpeed& size : speed.at({1, 2, 3, 5, 7, 8}, kPerNode, range, 4)) {
      cr_expect(range.contains(size.batch), "%u", size.batch);
      cr_expect(size.gpus <= size.batch, "no rank is without a sample");
    }
}

Test(job_speed, nonsense_is_left_out_or_not_believed) {
  JobSpeed speed;
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double step : {0.0, -1.0, std::nan(""), infinite, 1e-300, 1e300})
    speed.add({1, 2}, 64, step);
  speed.add({1, 0}, 64, 1);
  speed.add({4, 2}, 64, 1);
  speed.add({1, 2}, UINT64_MAX, 1);
  cr_expect(!speed.seen());
  std::uint64_t dice = 1;
  for (int i = 0; i < 2000; ++i) {
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    const auto gpus = static_cast<std::uint32_t>(1 + (dice >> 40) % 100000);
    speed.add({1, gpus}, 1 + (dice >> 33) % BatchRange::kMost,
              std::pow(10, (dice >> 50) % 17 - 8.0));
    speed.note_noise_scale(dice >> 24);
    if (i % 100 != 0) continue;
    for (const auto& range : {std::optional(kRange), std::optional<BatchRange>()})
      for (const SizeSpeed& size : speed.at(kSizes, kPerNode, range, 2))
        cr_expect(size.progress_per_s > 0 && std::isfinite(size.progress_per_s));
  }
}
