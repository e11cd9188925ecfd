// SPDX-License-Identifier: Apache-2.0
#include "elastic/policy/goodput.h"

#include <algorithm>
#include <cmath>

namespace bellows {
namespace {

constexpr int kBatches = 50;

std::uint64_t divide_up(std::uint64_t number, std::uint64_t by) { return (number + by - 1) / by; }

}  // namespace

double step_gain(const GradientNoise& noise, double scale) {
  const double below = noise.variance / scale + noise.squared_norm;
  return below > 0 ? (noise.variance + noise.squared_norm) / below : 1;
}

Batch lay_out(const BatchLimits& limits, const GpuLayout& layout, std::uint64_t batch) {
  const std::uint64_t of_rank = divide_up(batch, layout.gpus);
  std::uint64_t passes = divide_up(of_rank, limits.largest_local);
  if (layout.gpus == 1 && batch > limits.submitted) passes = std::max<std::uint64_t>(passes, 2);
  const std::uint64_t local =
      std::min(divide_up(of_rank, passes), limits.largest / (passes * layout.gpus));
  return {static_cast<std::uint32_t>(local), static_cast<std::uint32_t>(passes)};
}

std::vector<TimedBatch> possible_batches(const StepTime& time, const BatchLimits& limits,
                                         const GpuLayout& layout) {
  std::vector<TimedBatch> batches;
  const double least =
      std::max<double>(limits.smallest, static_cast<double>(layout.gpus) * limits.smallest_local);
  const double factor = std::pow(limits.largest / least, 1.0 / (kBatches - 1));
  double wanted = least;
  for (int i = 0; i < kBatches && least <= limits.largest; ++i, wanted *= factor) {
    const Batch batch = lay_out(limits, layout, static_cast<std::uint64_t>(wanted + 1e-6));
    if (batch.local < limits.smallest_local || batch.in_all(layout) < limits.smallest) continue;
    if (!batches.empty() && batch == batches.back().batch) continue;
    batches.push_back({batch, static_cast<double>(batch.in_all(layout)) / limits.submitted,
                       time.step_s(layout, batch.local, batch.passes)});
  }
  return batches;
}

Goodput best_goodput(const std::vector<TimedBatch>& batches, const GradientNoise& noise) {
  Goodput best;
  for (const TimedBatch& timed : batches) {
    const double per_s = step_gain(noise, timed.scale) / timed.step_s;
    if (per_s > best.per_s) best = {timed.batch, per_s};
  }
  return best;
}

}  // namespace bellows
