// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "elastic/optimizer/curve_rows.h"

namespace bellows {

/// A size that a job may have, and the best that it can do there.
struct JobSize {
  std::uint32_t gpus = 0;
  std::uint32_t batch = 0;  ///< samples in a step of the whole job, with which it is worth that
  std::int32_t value = 0;   ///< in the caller's fixed point
};

/// A job as the optimizer sees it.
struct ElasticJob {
  std::vector<JobSize> sizes;   ///< in ascending order of gpus, which are at least 1
  std::int32_t idle_value = 0;  ///< of not running
  std::uint32_t now = 0;        ///< GPUs that it holds; 0: it does not run
  /// What a change costs: the value of all but what it has now is lowered by it, and by no less
  /// than 1, so that nothing moves without gain. Not negative.
  std::int32_t move_price = 0;
};

/// What a job is worth with so many GPUs, 0 or one of its sizes, with the price of a change taken
/// off.
std::int32_t worth(const ElasticJob& job, std::uint32_t gpus, std::int32_t value);

/// The best total of one tenant's jobs for each number of GPUs: an exact dynamic program, one
/// max-plus convolution for each job, over arbitrary sizes and values. After the autoscaler of
/// Saxena et al., "Effective Elastic Scaling of Deep Learning Workloads" (2006.13878); that jobs
/// may be left out, the price of a change and the largest number of GPUs are ours. A value type.
class TenantCurve {
 public:
  /// With at most `most` GPUs in all. invalid: sizes that are not in order, a negative price, or
  /// values so large that their sum would not be exact.
  static Result<TenantCurve> of(std::vector<ElasticJob> jobs, std::uint32_t most,
                                Kernel kernel = fastest_kernel());

  const std::vector<ElasticJob>& jobs() const { return jobs_; }
  std::uint32_t most() const { return rows_.most(); }
  /// With at most so many GPUs, no more than most().
  std::int32_t value(std::uint32_t gpus) const { return rows_.value(jobs_.size(), gpus); }
  /// The fewest GPUs that are worth as much.
  std::uint32_t least_for(std::uint32_t gpus) const;
  /// GPUs of each job in a best division of at most so many; 0: it does not run.
  std::vector<std::uint32_t> divide(std::uint32_t gpus) const;

 private:
  TenantCurve(std::vector<ElasticJob> jobs, CurveRows rows);

  std::vector<ElasticJob> jobs_;
  CurveRows rows_;
};

}  // namespace bellows
