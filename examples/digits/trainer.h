// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "examples/digits/comm.h"
#include "examples/digits/data.h"
#include "examples/digits/net.h"
#include "examples/digits/noise.h"
#include "examples/digits/options.h"
#include "examples/digits/sampler.h"

namespace digits {

/// The samples whose gradients this rank computed, now that the weights follow them.
struct Applied {
  std::vector<std::uint32_t> ids;
  double loss = 0;  ///< sum over these samples
};

/// Data-parallel training. The batch of a step is cut into chunks, a number that does not depend
/// on the ranks; each rank computes the gradients of some of them. Each rank then owns a slice of
/// the weights and of the momentum: it gets the sum for its slice, updates it, and hands the new
/// weights to the others. So the momentum exists once, sharded, and the weights on every rank.
///
/// The weights after a step are the same, bit for bit, whatever the number of ranks.
class Trainer {
 public:
  /// The arguments must outlive the trainer.
  Trainer(Comm& comm, const Dataset& dataset, const Options& options);

  /// Trains with another batch than that of the options from now on. The learning rate of SGD grows
  /// with it (Goyal et al., arXiv:1706.02677).
  void use_batch(std::size_t batch);
  const Sampler& sampler() const { return sampler_; }

  std::span<float> weights() { return weights_; }
  /// This rank's slice, `slice()` of all.
  std::span<float> momentum() { return momentum_; }
  Range slice() const;

  /// The step at this position, on all ranks together.
  Applied step(const Position& at);

  /// How noisy the gradient is; the same on every rank.
  const NoiseScale& noise() const { return noise_; }

  /// The part of the held-out samples that is read right. On all ranks together.
  double accuracy();

 private:
  std::vector<Gradient> compute(std::span<const std::uint32_t> batch, Range chunks) const;
  void measure(const std::vector<std::vector<float>>& parts, std::size_t chunks,
               std::span<const float> mean, std::size_t samples);

  Comm& comm_;
  const Dataset& dataset_;
  const Options& options_;
  Net net_;
  Sampler sampler_;
  float rate_;
  std::vector<float> weights_;
  std::vector<float> momentum_;
  NoiseScale noise_;
  std::uint64_t steps_ = 0;
};

}  // namespace digits
