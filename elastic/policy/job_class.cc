// SPDX-License-Identifier: Apache-2.0
#include "elastic/policy/job_class.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/contract.h"
#include "elastic/policy/smoothing.h"

namespace bellows {
namespace {

constexpr std::size_t kMostFinished = 64;
/// What is left of a job that has had more than any that has finished, in parts of what it has had.
constexpr double kBeyond = 0.1;

/// How many times one thing is another, from the ratios wherever both are known: their geometric
/// mean, or 1 where there are none. Nothing: a ratio is another than the mean by more than a factor
/// of 1.5, so the two are not alike.
std::optional<double> common_ratio(const std::vector<double>& ratios) {
  const double unlike = std::log(1.5);
  double mean = 0;
  for (const double ratio : ratios) mean += std::log(ratio) / static_cast<double>(ratios.size());
  const bool alike = std::all_of(ratios.begin(), ratios.end(), [&](double ratio) {
    return std::abs(std::log(ratio) - mean) <= unlike;
  });
  return alike ? std::optional(std::exp(mean)) : std::nullopt;
}

/// How many times as long as in the class each kind of step of the job takes.
std::vector<double> ratios_to(const SpeedRecord& own, const SpeedRecord& of_class) {
  std::vector<double> all;
  for (const StepSample& sample : own.samples()) {
    const double foreseen = of_class.excess(sample.layout) *
                            of_class.model()->step_s(sample.layout, sample.local_batch, 1);
    all.push_back(sample.step_s / foreseen);
  }
  return all;
}

}  // namespace

void JobClass::add(const GpuLayout& layout, std::uint64_t batch, double step_s) {
  if (layout.gpus == 0 || batch == 0 || batch > BatchRange::kMost) return;
  const StepSample sample{layout, of_rank(batch, layout.gpus), 0, step_s};
  if (!check_sample(sample)) return;
  batch_ = batch;
  steps.add(sample);
}

void JobClass::note_first_noise(const GradientNoise& noise) {
  if (!first_noise_) {
    first_noise_ = noise;
    return;
  }
  first_noise_->squared_norm = smoothed(first_noise_->squared_norm, noise.squared_norm);
  first_noise_->variance = smoothed(first_noise_->variance, noise.variance);
}

void JobClass::note_finished(double service) {
  if (!std::isfinite(service) || service <= 0) return;
  if (finished_.size() == kMostFinished) finished_.pop_front();
  finished_.push_back(service);
}

std::optional<double> JobClass::service_left(double service) const {
  if (finished_.empty()) return std::nullopt;
  double sum = 0;
  std::size_t longer = 0;
  for (const double took : finished_) {
    if (took <= service) continue;
    sum += took - service;
    ++longer;
  }
  return longer > 0 ? sum / static_cast<double>(longer) : kBeyond * service;
}

Foresight::Foresight(const SpeedRecord& own, const SpeedRecord* of_class)
    : own_(&own), record_(&own) {
  if (!of_class || !of_class->model()) return;
  const auto ratio = common_ratio(ratios_to(own, *of_class));
  if (!ratio) return;
  record_ = of_class;
  scale_ = *ratio;
}

double Foresight::excess(const GpuLayout& layout) const {
  if (!by_class()) return own_->excess(layout);
  return own_->has(layout) ? own_->excess_over(model(), layout) : scale_ * record_->excess(layout);
}

std::uint32_t Foresight::most_gpus() const {
  return std::max(own_->most_gpus(), record_->most_gpus());
}

}  // namespace bellows
