// SPDX-License-Identifier: Apache-2.0
#include "elastic/policy/speed_record.h"

#include <algorithm>
#include <cmath>

namespace bellows {
namespace {

bool is_near(double foreseen, double measured) {
  return std::abs(foreseen - measured) <= 0.02 * measured;
}

// A first sample across GPUs or nodes is never foreseen: until then the model knows nothing of it.
bool foresees(const StepTime& model, const StepSample& sample) {
  return model.knows(sample.layout) &&
         (sample.compute_s == 0 ||
          is_near(model.compute_s(sample.local_batch), sample.compute_s)) &&
         is_near(model.step_s(sample.layout, sample.local_batch, 1), sample.step_s);
}

}  // namespace

bool SpeedRecord::add(const StepSample& sample) {
  const bool known = std::any_of(samples_.begin(), samples_.end(), [&](const StepSample& other) {
    return other.layout == sample.layout && other.local_batch == sample.local_batch;
  });
  if (known || !check_sample(sample)) return false;
  samples_.push_back(sample);
  most_gpus_ = std::max(most_gpus_, sample.layout.gpus);
  return true;
}

const std::optional<StepTime>& SpeedRecord::model() const {
  const bool foreseen =
      model_ && std::all_of(samples_.begin() + static_cast<std::ptrdiff_t>(seen_), samples_.end(),
                            [this](const StepSample& sample) { return foresees(*model_, sample); });
  seen_ = samples_.size();
  if (foreseen || samples_.empty()) return model_;
  if (auto model = fit_step_time(samples_, model_)) model_ = *model;
  ++models_;
  return model_;
}

double SpeedRecord::excess(const GpuLayout& layout) const {
  return model() ? excess_over(*model_, layout) : 1;
}

double SpeedRecord::excess_over(const StepTime& model, const GpuLayout& layout) const {
  double sum = 0;
  int samples = 0;
  for (const StepSample& sample : samples_) {
    if (sample.layout != layout) continue;
    sum += std::log(sample.step_s / model.step_s(layout, sample.local_batch, 1));
    ++samples;
  }
  return samples > 0 ? std::exp(sum / samples) : 1;
}

bool SpeedRecord::has(const GpuLayout& layout) const {
  return std::any_of(samples_.begin(), samples_.end(),
                     [&layout](const StepSample& sample) { return sample.layout == layout; });
}

}  // namespace bellows
