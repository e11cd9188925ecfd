// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/contract.h"
#include "elastic/policy/job_class.h"
#include "elastic/policy/objective.h"
#include "elastic/policy/seen_speeds.h"
#include "elastic/policy/seen_steps.h"

namespace bellows {

/// How fast a job trains, from what its launcher reports while it runs. A value type.
class JobSpeed {
 public:
  /// Steps of `batch` samples, 0 if the program does not say, took `step_s` seconds each. Later
  /// reports count more; what cannot be is left out.
  void add(const GpuLayout& layout, std::uint64_t batch, double step_s);
  /// Of the gradient, in samples; 0 is no news.
  void note_noise_scale(std::uint64_t samples);

  /// Works out now what the next questions need, and keeps it for them.
  void prepare() const { (void)seen_.record().model(); }

  bool seen() const { return most_gpus_ > 0; }
  bool seen_at(std::uint32_t gpus) const { return spread_.contains(gpus); }
  /// A job explores by doubling what it or its class has been seen at: the most GPUs at which it is
  /// taken to scale on. `now`: what it holds. `of_class`, here and below: what its class knows, its
  /// noise of a batch of one sample; null: nothing.
  std::uint32_t most_to_try(std::uint32_t now, const JobClass* of_class = nullptr) const;

  /// The speed at each of `sizes`, in ascending order of GPUs, packed onto nodes. With a range of
  /// batches and a noise scale each size but `now` has the batch that makes most progress there:
  /// no rank then has more samples than one of this job has had before, or of its class if nothing
  /// was seen of the job: a GPU's memory may not hold them. A size
  /// for which the range has no batch is left out. One that was seen is taken to be slower by the
  /// larger spread of what was seen there and at `now`, so that a job does not follow chance to and
  /// fro. Where the job has measured nothing itself, its class's measurements count.
  std::vector<SizeSpeed> at(const std::vector<std::uint32_t>& sizes, std::uint32_t gpus_per_node,
                            const std::optional<BatchRange>& range, std::uint32_t now,
                            const JobClass* of_class = nullptr) const;
  /// Whether that follows from what others of its class took there.
  bool is_by_class_at(const GpuLayout& layout, const JobClass& of_class) const;

 private:
  void note_spread(std::uint32_t gpus, double foreseen_s, double step_s);
  double doubt(std::uint32_t gpus, std::uint32_t now) const;
  struct Known;
  Known known(const JobClass* of_class) const;
  static std::optional<SizeSpeed> with_batch(const Known& known, const GpuLayout& layout,
                                             const std::optional<BatchRange>& range, bool is_now);

  SeenSpeeds plain_;  ///< steps in a second, of a program that does not say its batch
  SeenSteps seen_;
  std::map<std::uint32_t, double> spread_;  ///< of the steps' times at a size, over their mean
  std::uint64_t batch_ = 0;
  std::uint64_t noise_scale_ = 0;
  std::uint32_t most_gpus_ = 0;
};

}  // namespace bellows
