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

/// How far a training has come: `offset` samples of epoch `epoch` are used.
struct Position {
  std::uint64_t epoch = 0;
  std::uint64_t offset = 0;

  bool operator==(const Position&) const = default;
};

/// Decides which samples each step trains on: the next `batch` of the epoch's order, which is a
/// function of the seed and the epoch alone and knows nothing of ranks. So a job may stop after any
/// step and continue at any size and with any batch: every sample is in exactly one batch of every
/// epoch.
class Sampler {
 public:
  Sampler(std::uint64_t seed, std::size_t samples, std::size_t batch);

  std::size_t steps_per_epoch() const { return (samples_ + batch_ - 1) / batch_; }

  /// Indices of the samples of the step at this position, in order. The last batch of an epoch may
  /// be short.
  std::vector<std::uint32_t> batch(const Position& at) const;
  /// Where the step after that one begins.
  Position after(const Position& at) const;

 private:
  std::size_t size_at(const Position& at) const;

  std::uint64_t seed_;
  std::size_t samples_;
  std::size_t batch_;
};

}  // namespace digits
