// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/digits/data.h"

namespace digits {

/// What some samples ask the weights to change.
struct Gradient {
  std::vector<float> values;       ///< sum over the samples, one for each weight
  std::vector<std::uint32_t> ids;  ///< the samples that are in the sum
  double loss = 0;                 ///< sum over the samples
};

/// A perceptron with two hidden layers: 64, hidden, hidden, 10. It holds no weights: they are one
/// flat array of the caller's, which is what makes them easy to exchange and to checkpoint.
/// Every result is a function of the arguments, bit for bit, on one kind of machine.
class Net {
 public:
  explicit Net(int hidden);

  std::size_t weights() const { return weights_; }

  /// Fills the weights with small random numbers.
  void init(std::span<float> weights, std::uint64_t seed) const;

  /// Adds the gradient of the cross-entropy of each sample, one after the other.
  void add_gradient(std::span<const float> weights, std::span<const Sample* const> samples,
                    Gradient& gradient) const;

  /// The most likely label.
  int classify(std::span<const float> weights, const Sample& sample) const;

 private:
  // Weights are stored input by input, so that the inner loops run over neighbours in memory;
  // biases follow.
  struct Layer {
    int inputs;
    int outputs;
    std::size_t offset;

    std::size_t biases() const {
      return offset + static_cast<std::size_t>(inputs) * static_cast<std::size_t>(outputs);
    }
  };
  static constexpr int kLayers = 3;
  using Activations = std::array<std::vector<float>, kLayers + 1>;

  void forward(std::span<const float> weights, const Sample& sample, Activations& values) const;

  std::array<Layer, kLayers> layers_;
  std::size_t weights_;
};

/// Stochastic gradient descent with momentum on any part of the weights: each weight is updated by
/// itself, so ranks may share the work in any way with the same result.
void update(std::span<float> weights, std::span<float> momentum, std::span<const float> gradient,
            float rate, float decay);

}  // namespace digits
