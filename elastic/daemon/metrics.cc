// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/metrics.h"

#include <prometheus/text_serializer.h>

namespace bellows {
namespace {

prometheus::Counter& counter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

}  // namespace

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      plans(counter(*registry_, "bellowsd_plans_total", "Plans that changed a size")),
      troubled(counter(*registry_, "bellowsd_plans_troubled_total",
                       "Plans in which a job did not move as planned")),
      moves(counter(*registry_, "bellowsd_moves_total", "Jobs that were given another size")),
      reports(counter(*registry_, "bellowsd_reports_total", "Reports of launchers")),
      refused(counter(*registry_, "bellowsd_refused_calls_total",
                      "Calls that were forged, repeated, malformed or for another user's job")),
      slow(counter(*registry_, "bellowsd_slow_connections_total",
                   "Connections that lasted too long and were ended")),
      read_failures(counter(*registry_, "bellowsd_slurm_read_failures_total",
                            "Times that slurmctld did not answer")),
      jobs(gauge(*registry_, "bellowsd_elastic_jobs", "Jobs whose size bellowsd may change")),
      gpus(gauge(*registry_, "bellowsd_elastic_gpus", "GPUs that these jobs hold")),
      last_plan_s(gauge(*registry_, "bellowsd_last_plan_seconds",
                        "Time from the first order of the last plan until all its sizes ran")),
      lag_s(gauge(*registry_, "bellowsd_lag_seconds", "Time since slurmctld was last read")),
      acts(gauge(*registry_, "bellowsd_acts", "1 while a plan is being carried out")) {}

std::string Metrics::text() const {
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

}  // namespace bellows
