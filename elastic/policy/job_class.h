// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "elastic/policy/goodput.h"
#include "elastic/policy/seen_steps.h"

namespace bellows {

/// What the jobs of a class, which run the same program, have shown: a job that has seen little
/// takes it for its own. Bounded. A value type.
class JobClass {
 public:
  SeenSteps steps;

  /// A launcher's report: steps of `batch` samples took `step_s` seconds each. What cannot be is
  /// left out, and so is the report of a program that does not say its batch: steps of jobs with
  /// different batches cannot be compared.
  void add(const GpuLayout& layout, std::uint64_t batch, double step_s);
  /// Samples in a step of the job that was heard of last; 0: not known.
  std::uint64_t batch() const { return batch_; }
  /// The most GPUs of any job.
  std::uint32_t most_gpus() const { return steps.most_gpus(); }

  /// Of the first gradients of a job.
  void note_first_noise(const GradientNoise& noise);
  const std::optional<GradientNoise>& first_noise() const { return first_noise_; }

  /// A job of it has ended, of itself, after so many GPU-seconds.
  void note_finished(double service);
  /// GPU-seconds that a job will still take that has had so many, in the mean over those that took
  /// more; nothing: none has finished.
  std::optional<double> service_left(double service) const;

 private:
  std::uint64_t batch_ = 0;
  std::optional<GradientNoise> first_noise_;
  std::deque<double> finished_;  ///< the last ones
};

/// How long the steps of a job take, by its own record and by its class's: its own measurements
/// come first, and where it has none the class's follow it, slower or faster by as much as the two
/// differ where both are known. A class whose jobs are not like it is left out. Refers to both.
class Foresight {
 public:
  /// `of_class`: null, or without any sample: there is none.
  Foresight(const SpeedRecord& own, const SpeedRecord* of_class);

  /// Whether anything was seen of it or its class.
  bool any() const { return !record_->samples().empty(); }
  bool by_class() const { return record_ != own_; }
  /// Whose model it is. At least one sample is needed.
  const SpeedRecord& record() const { return *record_; }
  const StepTime& model() const { return *record_->model(); }
  /// How many times as long as the model says a step takes with a layout.
  double excess(const GpuLayout& layout) const;
  std::uint32_t most_gpus() const;

 private:
  const SpeedRecord* own_;
  const SpeedRecord* record_;
  double scale_ = 1;  ///< steps of the job take so many times as long as those of its class
};

}  // namespace bellows
