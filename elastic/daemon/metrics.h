// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>

namespace bellows {

/// What bellowsd counts, for Prometheus. Any number of threads may use it.
class Metrics {
  // Before the metrics, which it owns.
  std::shared_ptr<prometheus::Registry> registry_;

 public:
  Metrics();

  prometheus::Counter& plans;     ///< that changed a size
  prometheus::Counter& troubled;  ///< with a job that did not move as planned
  prometheus::Counter& moves;     ///< jobs that run with another size
  prometheus::Counter& reports;   ///< of launchers, that were taken
  prometheus::Counter& refused;   ///< calls
  prometheus::Counter& slow;      ///< connections that lasted too long
  prometheus::Counter& read_failures;
  prometheus::Gauge& jobs;         ///< elastic ones
  prometheus::Gauge& gpus;         ///< that these hold
  prometheus::Gauge& last_plan_s;  ///< from its first order until all of its sizes ran
  prometheus::Gauge& lag_s;        ///< since slurmctld was last read
  prometheus::Gauge& acts;         ///< 1: a plan is being carried out

  /// In Prometheus' text format.
  std::string text() const;
};

}  // namespace bellows
