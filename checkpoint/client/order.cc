// SPDX-License-Identifier: Apache-2.0
// The order of samples in an epoch: a permutation that is computed at any place without the others,
// by a Feistel network over the next power of four, walking on where it leaves the samples
// (J. Black, P. Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). Its numbers are part of
// the ABI: a job that continues after an update must find the same order.
#include <stdint.h>

#include "checkpoint/include/bellows.h"

namespace {

constexpr int kRounds = 8;
/// Below that the network has too few different orders.
constexpr unsigned kLeastHalf = 4;

// The finalizer of SplitMix64.
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

struct Network {
  uint64_t keys[kRounds];
  unsigned half = kLeastHalf;
  uint64_t mask = 0;

  Network(uint64_t seed, uint64_t epoch, uint64_t samples) {
    while (half < 32 && (uint64_t{1} << (2 * half)) < samples) ++half;
    mask = (uint64_t{1} << half) - 1;
    const uint64_t key = mix(mix(mix(seed + kGolden) ^ (epoch + kGolden)) ^ (samples + kGolden));
    for (int i = 0; i < kRounds; ++i) {
      keys[i] = mix(key + kGolden * (static_cast<uint64_t>(i) + 1));
    }
  }

  uint64_t pass(uint64_t value) const {
    uint64_t left = value >> half, right = value & mask;
    for (uint64_t key : keys) {
      const uint64_t next = left ^ (mix(right ^ key) & mask);
      left = right;
      right = next;
    }
    return left << half | right;
  }
};

}  // namespace

extern "C" int bellows_permutation(uint64_t seed, uint64_t epoch, uint64_t samples, uint64_t first,
                                   uint64_t count, uint64_t* out) {
  if (first > samples || count > samples - first || (!out && count > 0)) {
    return BELLOWS_ERR_INVALID;
  }
  const Network network(seed, epoch, samples);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t value = network.pass(first + i);
    while (value >= samples) value = network.pass(value);
    out[i] = value;
  }
  return BELLOWS_OK;
}
