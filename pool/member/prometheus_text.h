// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace bellows::pool {

using MetricNames = std::set<std::string, std::less<>>;

/// The samples of one name, added up over their labels.
struct PrometheusMetric {
  double value = 0;
  bool counter = false;  ///< only grows, until its program is started again
  bool wrong = false;    ///< one of its lines could not be read, so the sum is not whole
  /// Of its oldest sample that says when it was taken, in milliseconds since 1970.
  std::optional<std::int64_t> oldest_ms;
};

struct PrometheusText {
  static constexpr std::size_t kMostLine = 16 << 10;  ///< bytes
  static constexpr std::size_t kMostSamples = 100'000;
  static constexpr std::size_t kMostLabels = 64;  ///< of a sample

  std::map<std::string, PrometheusMetric, std::less<>> metrics;
  std::size_t samples = 0;      ///< of all names
  std::size_t wrong_lines = 0;  ///< that were skipped
  bool too_many = false;        ///< samples: then no metric is there
};

/// Prometheus' text exposition format 0.0.4, of which only `names` are kept. Buckets of histograms
/// and quantiles of summaries are left out: sums of these mean nothing.
PrometheusText read_prometheus_text(std::string_view text, const MetricNames& names);

}  // namespace bellows::pool
