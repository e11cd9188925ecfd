// SPDX-License-Identifier: Apache-2.0
#include "pool/member/scrape_notes.h"

#include <algorithm>
#include <cmath>

namespace bellows::pool {
namespace {

constexpr std::string_view kRate = ".rate";
/// The keeper takes what is older for missing anyway.
constexpr std::chrono::milliseconds kOldest = std::chrono::hours(24);

/// A program may pass on what it was told long ago, and says so then.
std::chrono::steady_clock::time_point taken_at(const Scrape& scrape,
                                               const PrometheusMetric& metric) {
  if (!metric.oldest_ms) return scrape.at;
  const auto wall =
      std::chrono::duration_cast<std::chrono::milliseconds>(scrape.wall.time_since_epoch());
  const std::chrono::milliseconds age = wall - std::chrono::milliseconds(*metric.oldest_ms);
  return scrape.at - std::clamp(age, std::chrono::milliseconds(0), kOldest);
}

}  // namespace

MetricNames names_to_scrape(const MetricNames& targets) {
  MetricNames names;
  for (std::string_view name : targets) {
    if (name.ends_with(kRate)) name.remove_suffix(kRate.size());
    if (name != "cpu" && name != "memory" && name != "gpu") names.emplace(name);
  }
  return names;
}

void ScrapeNotes::take(const Scrape& scrape, MemberNotes& notes) {
  for (const auto& [name, metric] : scrape.text.metrics) {
    if (metric.wrong || !std::isfinite(metric.value)) continue;
    const auto at = taken_at(scrape, metric);
    if (!metric.counter) {
      (void)notes.note(name, metric.value, at);
      continue;
    }
    const auto last = counters_.find(name);
    if (last != counters_.end() && at <= last->second.at) continue;
    // A smaller one was started again, and how far it had come before that nobody knows.
    if (last != counters_.end() && metric.value >= last->second.value) {
      const std::chrono::duration<double> passed = at - last->second.at;
      (void)notes.note(name + std::string(kRate),
                       (metric.value - last->second.value) / passed.count(), at);
    }
    counters_[name] = {metric.value, at};
  }
}

}  // namespace bellows::pool
