// SPDX-License-Identifier: Apache-2.0
#include "elastic/policy/seen_steps.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "elastic/policy/smoothing.h"

namespace bellows {
namespace {

/// The model is fitted anew when a mean has moved by more.
constexpr double kNear = 0.02;
constexpr std::size_t kMostSeen = 64;

}  // namespace

std::uint32_t of_rank(std::uint64_t batch, std::uint32_t gpus) {
  const std::uint64_t samples = (batch + gpus - 1) / gpus;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(samples, 1, UINT32_MAX));
}

std::optional<double> SeenSteps::add(const StepSample& sample) {
  if (!check_sample(sample)) return std::nullopt;
  const auto known = std::find_if(seen_.begin(), seen_.end(), [&](const StepSample& seen) {
    return seen.layout == sample.layout && seen.local_batch == sample.local_batch;
  });
  if (known == seen_.end()) {
    if (seen_.size() == kMostSeen) seen_.erase(seen_.begin());
    seen_.push_back(sample);
    is_current_ = false;
    return std::nullopt;
  }
  const double before = known->step_s;
  known->step_s = smoothed(before, sample.step_s);
  known->compute_s = std::min(known->step_s, smoothed(known->compute_s, sample.compute_s));
  if (std::abs(known->step_s - before) > kNear * before) is_current_ = false;
  return before;
}

std::uint32_t SeenSteps::most_local() const {
  std::uint32_t most = 0;
  for (const StepSample& seen : seen_) most = std::max(most, seen.local_batch);
  return most;
}

std::uint32_t SeenSteps::most_gpus() const {
  std::uint32_t most = 0;
  for (const StepSample& seen : seen_) most = std::max(most, seen.layout.gpus);
  return most;
}

const SpeedRecord& SeenSteps::record() const {
  if (is_current_) return record_;
  // Models are counted on, so that one is never taken for another.
  record_ = SpeedRecord(record_.models());
  const auto fewest = std::min_element(
      seen_.begin(), seen_.end(),
      [](const StepSample& a, const StepSample& b) { return a.layout.gpus < b.layout.gpus; });
  for (StepSample sample : seen_) {
    if (sample.compute_s == 0 && sample.layout.gpus == fewest->layout.gpus)
      sample.compute_s = sample.step_s;
    record_.add(sample);
  }
  is_current_ = true;
  return record_;
}

}  // namespace bellows
