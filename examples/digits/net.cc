// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/net.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "examples/digits/random.h"

namespace digits {
namespace {

// out += factor * in
void add_scaled(float* out, const float* in, float factor, int count) {
  for (int i = 0; i < count; ++i) out[i] += factor * in[i];
}

// Eight sums side by side: the compiler may not reorder float additions by itself, and one long
// chain of them would wait for each.
float dot(const float* a, const float* b, int count) {
  float sums[8] = {};
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Turns scores into probabilities.
void softmax(std::vector<float>& values) {
  const float max = *std::max_element(values.begin(), values.end());
  float sum = 0;
  for (float& value : values) sum += value = std::exp(value - max);
  for (float& value : values) value /= sum;
}

}  // namespace

Net::Net(int hidden) : weights_(0) {
  if (hidden < 1 || hidden > 16384) throw std::invalid_argument("--hidden must be 1 to 16384");
  const int widths[kLayers + 1] = {kPixels, hidden, hidden, kClasses};
  for (int i = 0; i < kLayers; ++i) {
    layers_[i] = {widths[i], widths[i + 1], weights_};
    weights_ = layers_[i].biases() + static_cast<std::size_t>(widths[i + 1]);
  }
}

void Net::init(std::span<float> weights, std::uint64_t seed) const {
  Random random(seed);
  std::fill(weights.begin(), weights.end(), 0.0f);
  for (const Layer& layer : layers_) {
    const float scale = std::sqrt(6.0f / static_cast<float>(layer.inputs));
    for (std::size_t i = layer.offset; i < layer.biases(); ++i) {
      weights[i] = scale * random.symmetric();
    }
  }
}

void Net::forward(std::span<const float> weights, const Sample& sample, Activations& values) const {
  values[0].assign(sample.pixels.begin(), sample.pixels.end());
  for (int i = 0; i < kLayers; ++i) {
    const Layer& layer = layers_[i];
    std::vector<float>& out = values[i + 1];
    const float* bias = &weights[layer.biases()];
    out.assign(bias, bias + layer.outputs);
    const float* row = &weights[layer.offset];
    for (float input : values[i]) {
      if (input != 0.0f) add_scaled(out.data(), row, input, layer.outputs);
      row += layer.outputs;
    }
    if (i + 1 < kLayers) {
      for (float& value : out) value = std::max(value, 0.0f);
    }
  }
  softmax(values[kLayers]);
}

void Net::add_gradient(std::span<const float> weights, std::span<const Sample* const> samples,
                       Gradient& gradient) const {
  gradient.values.resize(weights_);
  Activations values;
  std::vector<float> error;
  std::vector<float> below;
  for (const Sample* sample : samples) {
    forward(weights, *sample, values);
    gradient.loss -= std::log(std::max(values[kLayers][sample->label], 1e-30f));
    error = values[kLayers];
    error[sample->label] -= 1.0f;
    for (int i = kLayers; i-- > 0;) {
      const Layer& layer = layers_[i];
      const float* row = &weights[layer.offset];
      float* change = &gradient.values[layer.offset];
      below.assign(static_cast<std::size_t>(layer.inputs), 0.0f);
      // An input of zero is a dark pixel or a unit that did not fire: nothing flows through it.
      for (int input = 0; input < layer.inputs; ++input) {
        const float value = values[i][input];
        if (value != 0.0f) {
          add_scaled(change, error.data(), value, layer.outputs);
          if (i > 0) below[input] = dot(row, error.data(), layer.outputs);
        }
        row += layer.outputs;
        change += layer.outputs;
      }
      add_scaled(&gradient.values[layer.biases()], error.data(), 1.0f, layer.outputs);
      std::swap(error, below);
    }
    gradient.ids.push_back(sample->id);
  }
}

int Net::classify(std::span<const float> weights, const Sample& sample) const {
  Activations values;
  forward(weights, sample, values);
  const std::vector<float>& scores = values[kLayers];
  return static_cast<int>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

void update(std::span<float> weights, std::span<float> momentum, std::span<const float> gradient,
            float rate, float decay) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    momentum[i] = decay * momentum[i] + gradient[i];
    weights[i] -= rate * momentum[i];
  }
}

}  // namespace digits
