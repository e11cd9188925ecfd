// SPDX-License-Identifier: Apache-2.0
#include "elastic/optimizer/tenant_curve.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>

namespace bellows {
namespace {

Error of_job(std::size_t number, const char* what) {
  return {ErrorKind::invalid, fmt::format("job {} of a tenant: {}", number, what)};
}

/// The steps of a job's curve, first what it has now, then the others by their GPUs: among equals
/// the first is taken.
std::vector<CurveStep> steps_of(const ElasticJob& job, std::uint32_t most) {
  std::vector<CurveStep> steps = {{0, worth(job, 0, job.idle_value)}};
  for (const JobSize& size : job.sizes)
    if (size.gpus <= most) steps.push_back({size.gpus, worth(job, size.gpus, size.value)});
  const auto now = std::find_if(steps.begin(), steps.end(),
                                [&job](const CurveStep& step) { return step.gpus == job.now; });
  if (now != steps.end()) std::rotate(steps.begin(), now, now + 1);
  return steps;
}

/// What the job can add to a sum at most, either way; more than can be: something is wrong.
std::int64_t largest_worth(const ElasticJob& job) {
  const auto size_of = [&job](std::int64_t value) {
    return std::abs(value) + std::max<std::int64_t>(job.move_price, 1);
  };
  std::int64_t largest = size_of(job.idle_value);
  for (const JobSize& size : job.sizes) largest = std::max(largest, size_of(size.value));
  return largest;
}

Status check(const std::vector<ElasticJob>& jobs) {
  std::int64_t sum = 0;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    std::uint32_t before = 0;
    for (const JobSize& size : jobs[j].sizes) {
      if (size.gpus <= before) return of_job(j, "its sizes are not in ascending order from 1 on");
      before = size.gpus;
    }
    if (jobs[j].move_price < 0) return of_job(j, "the price of a change is negative");
    sum += largest_worth(jobs[j]);
    if (sum > CurveRows::kLargest)
      return of_job(j, "with it the values are too large to be added exactly; use a smaller scale");
  }
  return {};
}

}  // namespace

std::int32_t worth(const ElasticJob& job, std::uint32_t gpus, std::int32_t value) {
  return gpus == job.now ? value : value - std::max(job.move_price, 1);
}

TenantCurve::TenantCurve(std::vector<ElasticJob> jobs, CurveRows rows)
    : jobs_(std::move(jobs)), rows_(std::move(rows)) {}

Result<TenantCurve> TenantCurve::of(std::vector<ElasticJob> jobs, std::uint32_t most,
                                    Kernel kernel) {
  if (auto status = check(jobs); !status) return status.error();
  std::uint64_t usable = 0;
  std::uint32_t largest = 0;
  for (const ElasticJob& job : jobs) {
    if (job.sizes.empty()) continue;
    usable += job.sizes.back().gpus;
    largest = std::max(largest, job.sizes.back().gpus);
  }
  most = static_cast<std::uint32_t>(std::min<std::uint64_t>(most, usable));
  CurveRows rows(most, jobs.size(), std::min(largest, most), kernel);
  for (const ElasticJob& job : jobs) rows.add(steps_of(job, most));
  return TenantCurve(std::move(jobs), std::move(rows));
}

std::uint32_t TenantCurve::least_for(std::uint32_t gpus) const {
  const std::int32_t wanted = value(gpus);
  std::uint32_t low = 0;
  // The curve never falls.
  for (std::uint32_t high = gpus; low < high;) {
    const std::uint32_t middle = low + (high - low) / 2;
    value(middle) == wanted ? high = middle : low = middle + 1;
  }
  return low;
}

std::vector<std::uint32_t> TenantCurve::divide(std::uint32_t gpus) const {
  std::vector<std::uint32_t> held(jobs_.size());
  for (std::size_t j = jobs_.size(); j-- > 0;) {
    const auto steps = steps_of(jobs_[j], most());
    const auto taken = std::find_if(steps.begin(), steps.end(), [&](const CurveStep& step) {
      return step.gpus <= gpus &&
             rows_.value(j, gpus - step.gpus) + step.value == rows_.value(j + 1, gpus);
    });
    held[j] = taken->gpus;
    gpus -= taken->gpus;
  }
  return held;
}

}  // namespace bellows
