// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "elastic/policy/step_time.h"

namespace bellows {

/// The squared norm of the gradient and the variance of its estimate, at the batch that a job was
/// submitted with.
struct GradientNoise {
  double squared_norm = 0;
  double variance = 0;

  bool operator==(const GradientNoise&) const = default;
};

/// What a step with `scale` times the submitted batch is worth in steps of the submitted one, from
/// 1 to `scale`. The gain of AdaScale (Johnson et al., 2007.05105).
double step_gain(const GradientNoise& noise, double scale);

/// How the samples of a step are laid out.
struct Batch {
  std::uint32_t local = 0;   ///< samples that a rank takes through the network at once
  std::uint32_t passes = 0;  ///< of each rank before the gradients are exchanged

  std::uint64_t in_all(const GpuLayout& layout) const {
    return std::uint64_t{local} * passes * layout.gpus;
  }
  bool operator==(const Batch&) const = default;
};

/// What the contract and the GPUs' memory allow.
struct BatchLimits {
  std::uint32_t submitted = 0;  ///< samples in a step; what scale and noise refer to
  std::uint32_t smallest = 0;   ///< in a step
  std::uint32_t largest = 0;    ///< in a step
  std::uint32_t smallest_local = 1;
  std::uint32_t largest_local = 0;  ///< what fits into the memory of a GPU
};

/// The layout of a batch of at least `batch` samples, as near to it as equal ranks allow but never
/// above the largest. With one GPU and more than the submitted batch there are two passes or more:
/// the noise of the gradient can't be measured from one.
Batch lay_out(const BatchLimits& limits, const GpuLayout& layout, std::uint64_t batch);

struct Goodput {
  Batch batch;
  double per_s = 0;  ///< steps of the submitted batch in a second; 0: the ranks are too many
};

/// A batch that a job could have, and how long the model says that a step with it would take.
struct TimedBatch {
  Batch batch;
  double scale = 0;  ///< times the submitted batch
  double step_s = 0;
};

/// Up to 50 between the smallest and the largest, each about the same factor above the last; none
/// if the ranks are too many.
std::vector<TimedBatch> possible_batches(const StepTime& time, const BatchLimits& limits,
                                         const GpuLayout& layout);

/// The batch with which a job makes most progress in a second.
Goodput best_goodput(const std::vector<TimedBatch>& batches, const GradientNoise& noise);

}  // namespace bellows
