// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/sampler.h"

#include <algorithm>
#include <stdexcept>

#include <bellows.h>

namespace digits {

Sampler::Sampler(std::uint64_t seed, std::size_t samples, std::size_t batch)
    : seed_(seed), samples_(samples), batch_(batch) {
  if (samples == 0 || batch == 0) throw std::invalid_argument("no samples, or batches of none");
}

std::vector<std::uint32_t> Sampler::batch(std::uint64_t step) const {
  const std::size_t begin = step % steps_per_epoch() * batch_;
  std::vector<std::uint64_t> samples(std::min(batch_, samples_ - begin));
  if (bellows_permutation(seed_, epoch_of(step), samples_, begin, samples.size(), samples.data()) <
      0) {
    throw std::logic_error("a batch past the end of the epoch");
  }
  return {samples.begin(), samples.end()};
}

}  // namespace digits
