// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/variation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

namespace bellows {
namespace {

/// The distributions of the standard library differ from one library to another.
class Dice {
 public:
  explicit Dice(std::uint32_t seed) : engine_(seed) {}
  /// From 0 to below 1.
  double part() { return static_cast<double>(engine_()) * 0x1p-32; }
  std::size_t below(std::size_t limit) {
    return static_cast<std::size_t>(part() * static_cast<double>(limit));
  }

 private:
  std::mt19937 engine_;
};

std::uint32_t random_batch(const BatchLimits& limits, Dice& dice) {
  const double batch = limits.smallest *
                       std::pow(static_cast<double>(limits.largest) / limits.smallest, dice.part());
  return std::clamp(static_cast<std::uint32_t>(std::lround(batch)), limits.smallest,
                    limits.largest);
}

/// `count` different numbers below `limit`, in ascending order.
std::vector<std::size_t> draw(std::size_t count, std::size_t limit, Dice& dice) {
  std::vector<std::size_t> all(limit);
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (std::size_t i = 0; i < count; ++i) std::swap(all[i], all[i + dice.below(limit - i)]);
  all.resize(count);
  std::sort(all.begin(), all.end());
  return all;
}

double random_arrival(const std::vector<Submission>& submissions, Dice& dice) {
  const std::size_t next = dice.below(submissions.size());
  const double from_s = next > 0 ? submissions[next - 1].submit_s : 0;
  return from_s + (submissions[next].submit_s - from_s) * dice.part();
}

}  // namespace

std::vector<Submission> with_batches(std::vector<Submission> submissions, BatchChoice choice,
                                     std::uint32_t seed) {
  Dice dice(seed);
  for (Submission& submission : submissions) {
    const BatchLimits& limits = submission.application->limits();
    if (choice == BatchChoice::initial) submission.batch = limits.smallest;
    if (choice == BatchChoice::largest) submission.batch = limits.largest;
    if (choice == BatchChoice::random) submission.batch = random_batch(limits, dice);
  }
  return submissions;
}

std::vector<Submission> at_load(const std::vector<Submission>& submissions, double load,
                                std::uint32_t seed) {
  const std::size_t jobs = submissions.size();
  const auto wanted = std::max<std::size_t>(
      1, static_cast<std::size_t>(std::llround(load * static_cast<double>(jobs))));
  Dice dice(seed);
  std::vector<Submission> varied;
  while (varied.size() < wanted) {
    const std::size_t times = varied.size() / jobs;
    for (const std::size_t j : draw(std::min(jobs, wanted - varied.size()), jobs, dice)) {
      varied.push_back(submissions[j]);
      if (times == 0) continue;
      varied.back().name += fmt::format("+{}", times);
      varied.back().submit_s = random_arrival(submissions, dice);
    }
  }
  std::stable_sort(varied.begin(), varied.end(),
                   [](const auto& a, const auto& b) { return a.submit_s < b.submit_s; });
  return varied;
}

}  // namespace bellows
