// SPDX-License-Identifier: Apache-2.0
// The order of samples that bellows_permutation gives: once each, as if by chance, and for ever.
#include <criterion/criterion.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "checkpoint/include/bellows.h"

namespace {

std::vector<std::uint64_t> order_of(std::uint64_t seed, std::uint64_t epoch, std::uint64_t samples,
                                    std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> out(count);
  cr_assert(bellows_permutation(seed, epoch, samples, first, count, out.data()) == BELLOWS_OK);
  return out;
}

void expect_each_once(std::uint64_t seed, std::uint64_t samples) {
  const auto order = order_of(seed, 3, samples, 0, samples);
  std::vector<bool> seen(samples);
  for (std::uint64_t sample : order) {
    cr_assert(sample < samples && !seen[sample], "%lu samples: %lu comes twice", samples, sample);
    seen[sample] = true;
  }
}

// Pearson's sum over counts that should all be `expected`.
double chi_square(const std::vector<std::uint64_t>& counts, double expected) {
  double sum = 0;
  for (std::uint64_t n : counts) {
    const double off = static_cast<double>(n) - expected;
    sum += off * off / expected;
  }
  return sum;
}

}  // namespace

Test(order, gives_each_sample_once, .timeout = 60) {
  for (std::uint64_t samples = 1; samples <= 600; ++samples) expect_each_once(samples, samples);
  for (std::uint64_t samples : {1023u, 1024u, 1025u, 4095u, 4097u, 16385u, 60000u, 65537u}) {
    expect_each_once(11, samples);
  }
}

// Any ranks, any batch: the parts are those of one order.
Test(order, its_parts_fit_together, .timeout = 60) {
  constexpr std::uint64_t kSamples = 1009;
  const auto whole = order_of(5, 2, kSamples, 0, kSamples);
  for (std::uint64_t count : {1u, 7u, 64u, 500u}) {
    std::vector<std::uint64_t> joined;
    for (std::uint64_t first = 0; first < kSamples; first += count) {
      const auto part = order_of(5, 2, kSamples, first, std::min(count, kSamples - first));
      joined.insert(joined.end(), part.begin(), part.end());
    }
    cr_expect(joined == whole, "in parts of %lu", count);
  }
  cr_expect(order_of(6, 2, kSamples, 0, kSamples) != whole);
  cr_expect(order_of(5, 3, kSamples, 0, kSamples) != whole);
}

// They are part of the ABI: a job that goes on after an update must meet the same order.
Test(order, never_changes, .timeout = 10) {
  using Order = std::vector<std::uint64_t>;
  cr_expect(order_of(0, 0, 10, 0, 10) == (Order{6u, 4u, 8u, 9u, 3u, 0u, 2u, 1u, 7u, 5u}));
  cr_expect(order_of(42, 7, 1000, 990, 10) ==
            (Order{375u, 123u, 820u, 999u, 504u, 176u, 587u, 312u, 453u, 918u}));
  cr_expect(order_of(UINT64_MAX, UINT64_MAX, 1u << 31, 12345, 4) ==
            (Order{2072835166u, 46782119u, 56765734u, 396283725u}));
  cr_expect(order_of(1, 2, UINT64_MAX, UINT64_MAX - 3, 3) ==
            (Order{10162391087942917327u, 603678239569495772u, 4006868914794855020u}));
}

// Over many epochs each sample is at each place equally often, and as often before as after its
// neighbour. The limits are those that chance passes once in ten thousand.
Test(order, is_as_if_by_chance, .timeout = 60) {
  constexpr std::uint64_t kSamples = 10, kEpochs = 20000;
  std::vector<std::uint64_t> places(kSamples * kSamples), follows(kSamples * kSamples);
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = order_of(1, epoch, kSamples, 0, kSamples);
    for (std::uint64_t i = 0; i < kSamples; ++i) {
      ++places[i * kSamples + order[i]];
      if (i > 0) ++follows[order[i - 1] * kSamples + order[i]];
    }
  }
  // (10 - 1)^2 degrees of freedom; then 10 x 9 pairs.
  cr_expect(chi_square(places, kEpochs / 10.0) < 137, "%g", chi_square(places, kEpochs / 10.0));
  std::vector<std::uint64_t> pairs;
  for (std::uint64_t i = 0; i < follows.size(); ++i) {
    if (i % (kSamples + 1) != 0) pairs.push_back(follows[i]);
  }
  cr_expect(chi_square(pairs, kEpochs / 10.0) < 145, "%g", chi_square(pairs, kEpochs / 10.0));
  const auto large = order_of(1, 1, 100000, 0, 100000);
  std::vector<std::uint64_t> blocks(100);
  for (std::uint64_t i = 0; i < 10000; ++i) ++blocks[large[i] / 1000];
  cr_expect(chi_square(blocks, 100) < 160, "%g", chi_square(blocks, 100));
}

Test(order, refuses_what_it_cannot_give, .timeout = 10) {
  std::uint64_t out = 0;
  cr_expect(bellows_permutation(0, 0, 10, 10, 1, &out) == BELLOWS_ERR_INVALID);
  cr_expect(bellows_permutation(0, 0, 10, 9, 2, &out) == BELLOWS_ERR_INVALID);
  cr_expect(bellows_permutation(0, 0, 10, UINT64_MAX, 2, &out) == BELLOWS_ERR_INVALID);
  cr_expect(bellows_permutation(0, 0, 10, 0, 1, nullptr) == BELLOWS_ERR_INVALID);
  cr_expect(bellows_permutation(0, 0, 0, 0, 0, nullptr) == BELLOWS_OK);
}
