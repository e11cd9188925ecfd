// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "elastic/simulate/job.h"

namespace bellows {

/// Which batch the jobs of a workload are submitted with.
enum class BatchChoice {
  submitted,  ///< what the workload says
  initial,    ///< the smallest that the contract allows
  largest,    ///< that was measured
  random      ///< drawn between these two, their logarithms being equally likely
};

/// The same jobs with another batch. The same seed gives the same batches everywhere.
std::vector<Submission> with_batches(std::vector<Submission> submissions, BatchChoice choice,
                                     std::uint32_t seed);

/// `load` times as many jobs in the same time. All are kept as often as the whole part of it says,
/// and as many as are missing are drawn; a copy comes at a random time between two neighbouring
/// arrivals, which are drawn as well, so that busy hours stay busy. At least one job; in the order
/// of time. The same seed gives the same jobs everywhere.
std::vector<Submission> at_load(const std::vector<Submission>& submissions, double load,
                                std::uint32_t seed);

}  // namespace bellows
