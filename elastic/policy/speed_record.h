// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "elastic/policy/step_time.h"

namespace bellows {

/// The steps that a job, or the jobs of a class, were seen to take, and the model that follows from
/// them. A value type.
class SpeedRecord {
 public:
  SpeedRecord() = default;
  /// Of a record in place of one that has had so many models.
  explicit SpeedRecord(std::uint64_t models) : models_(models) {}

  /// Of two samples of one configuration the first is kept; what can't be is left out. Whether the
  /// model may change by it.
  bool add(const StepSample& sample);

  /// Nothing before the first sample. Samples that the model foresees within 2 % leave it as it is.
  const std::optional<StepTime>& model() const;
  /// How many models there have been.
  std::uint64_t models() const { return models_; }
  /// How much longer steps took with a layout than the model says: the geometric mean over its
  /// samples; 1 where there are none. What the model's form can't follow, such as a pair of nodes
  /// with a slow link, is in here.
  double excess(const GpuLayout& layout) const;
  /// The same over another record's model.
  double excess_over(const StepTime& model, const GpuLayout& layout) const;
  /// Whether there is a sample of the layout.
  bool has(const GpuLayout& layout) const;
  const std::vector<StepSample>& samples() const { return samples_; }
  /// The most GPUs of any sample.
  std::uint32_t most_gpus() const { return most_gpus_; }

 private:
  std::vector<StepSample> samples_;
  std::uint32_t most_gpus_ = 0;
  // A fit takes a while, and few of the models are asked for.
  mutable std::size_t seen_ = 0;  ///< samples that model_ knows or foresees
  mutable std::optional<StepTime> model_;
  mutable std::uint64_t models_ = 0;
};

}  // namespace bellows
