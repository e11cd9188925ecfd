// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "pool/member/member_notes.h"
#include "pool/member/prometheus_text.h"

namespace bellows::pool {

/// What a program has answered, and when it was asked.
struct Scrape {
  PrometheusText text;
  std::chrono::steady_clock::time_point at;
  std::chrono::system_clock::time_point wall;
};

/// Which of a program's names a policy needs, by the names of its targets: those of counters are
/// NAME.rate there. Not cpu, memory and gpu, which agents measure.
MetricNames names_to_scrape(const MetricNames& targets);

/// Notes what was scraped as figures of the member: counters as a rate a second, NAME.rate, and all
/// else as it is. What a scrape does not have, or not whole, keeps its figure and its age.
class ScrapeNotes {
 public:
  void take(const Scrape& scrape, MemberNotes& notes);

 private:
  std::map<std::string, NotedMetric> counters_;
};

}  // namespace bellows::pool
