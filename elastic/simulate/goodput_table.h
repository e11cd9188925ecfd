// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <utility>

#include "elastic/simulate/job.h"

namespace bellows {

/// The best goodput of one job by its layout, as its speed record predicts it. What can be kept
/// from one question to the next is kept.
class GoodputTable {
 public:
  /// Steps of the submitted batch in a second; 0: so many ranks have no batch. The record must have
  /// a sample.
  double at(const SpeedRecord& speed, const GradientNoise& noise, const BatchLimits& limits,
            const GpuLayout& layout);

 private:
  struct Known {
    std::vector<TimedBatch> batches;
    GradientNoise noise;
    double per_s = -1;
  };

  std::map<std::pair<std::uint32_t, std::uint32_t>, Known> known_;  ///< by nodes and GPUs
  const SpeedRecord* speed_ = nullptr;
  std::uint64_t models_ = 0;
};

}  // namespace bellows
