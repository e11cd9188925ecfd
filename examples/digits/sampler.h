// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace digits {

/// A half-open range.
struct Range {
  std::size_t begin;
  std::size_t end;

  std::size_t size() const { return end - begin; }
};

/// Part `part` of [0, total) cut into `parts` neighbours of nearly equal size; some may be empty.
inline Range share(std::size_t total, std::size_t part, std::size_t parts) {
  return {total * part / parts, total * (part + 1) / parts};
}

/// Decides which samples each step trains on. It is a function of the seed and the step alone and
/// knows nothing of ranks, so a job may stop after any step and continue at any size: every sample
/// is in exactly one batch of every epoch.
class Sampler {
 public:
  Sampler(std::uint64_t seed, std::size_t samples, std::size_t batch);

  std::size_t steps_per_epoch() const { return (samples_ + batch_ - 1) / batch_; }
  std::uint64_t epoch_of(std::uint64_t step) const { return step / steps_per_epoch(); }

  /// Indices of the samples of this step, in order. The last batch of an epoch may be short.
  std::vector<std::uint32_t> batch(std::uint64_t step) const;

 private:
  std::uint64_t seed_;
  std::size_t samples_;
  std::size_t batch_;
};

}  // namespace digits
