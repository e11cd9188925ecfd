// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "elastic/policy/speed_record.h"

namespace bellows {

/// The samples of a rank in a step of so many samples.
std::uint32_t of_rank(std::uint64_t batch, std::uint32_t gpus);

/// How long steps were seen to take with each layout and local batch, in a job or in the jobs of a
/// class, as means over reports. Bounded, for reports are a user's. A value type.
class SeenSteps {
 public:
  /// Later ones count more; what can't be is left out. The mean before, in seconds, where there was
  /// one.
  std::optional<double> add(const StepSample& sample);

  bool empty() const { return seen_.empty(); }
  const std::vector<StepSample>& samples() const { return seen_; }
  /// The most samples that a rank took through the network at once; 0: nothing was seen.
  std::uint32_t most_local() const;
  std::uint32_t most_gpus() const;

  /// The same with its model, which is fitted when it is asked for. Where computing was not told
  /// from the exchange of gradients, the whole step counts as computing with the fewest GPUs, so
  /// that what is slower with more of them is their exchange.
  const SpeedRecord& record() const;

 private:
  std::vector<StepSample> seen_;
  // Fitting a model takes a while, and reports come more often than plans.
  mutable SpeedRecord record_;
  mutable bool is_current_ = false;
};

}  // namespace bellows
