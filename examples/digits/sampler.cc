// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/sampler.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "examples/digits/random.h"

namespace digits {

Sampler::Sampler(std::uint64_t seed, std::size_t samples, std::size_t batch)
    : seed_(seed), samples_(samples), batch_(batch) {
  if (samples == 0 || batch == 0) throw std::invalid_argument("no samples, or batches of none");
}

void Sampler::shuffle_for(std::uint64_t epoch) {
  if (epoch == epoch_ && !order_.empty()) return;
  order_.resize(samples_);
  std::iota(order_.begin(), order_.end(), 0u);
  Random mixed(seed_);
  Random(mixed.next() ^ epoch).shuffle(order_);
  epoch_ = epoch;
}

std::vector<std::uint32_t> Sampler::batch(std::uint64_t step) {
  shuffle_for(epoch_of(step));
  const std::size_t begin = step % steps_per_epoch() * batch_;
  const std::size_t end = std::min(begin + batch_, samples_);
  return {order_.begin() + static_cast<std::ptrdiff_t>(begin),
          order_.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace digits
