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

std::size_t Sampler::size_at(const Position& at) const {
  if (at.offset >= samples_) throw std::logic_error("a batch past the end of the epoch");
  return std::min(batch_, samples_ - at.offset);
}

std::vector<std::uint32_t> Sampler::batch(const Position& at) const {
  std::vector<std::uint64_t> samples(size_at(at));
  if (bellows_permutation(seed_, at.epoch, samples_, at.offset, samples.size(), samples.data()) <
      0) {
    throw std::logic_error("a batch past the end of the epoch");
  }
  return {samples.begin(), samples.end()};
}

Position Sampler::after(const Position& at) const {
  const std::uint64_t offset = at.offset + size_at(at);
  return offset < samples_ ? Position{at.epoch, offset} : Position{at.epoch + 1, 0};
}

}  // namespace digits
