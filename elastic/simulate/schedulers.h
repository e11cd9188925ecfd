// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "elastic/daemon/planner.h"
#include "elastic/simulate/cluster.h"
#include "elastic/simulate/variation.h"

namespace bellows {

/// A scheduler that can be asked for by name.
struct SchedulerKind {
  std::string_view name;
  std::string_view description;
  BatchChoice batch;  ///< of its jobs
  bool at_events;     ///< it decides whenever a job arrives or ends, not only in rounds
};

/// In the order in which they are shown.
const std::vector<SchedulerKind>& scheduler_kinds();

/// invalid: there is none of that name.
Result<SchedulerKind> scheduler_kind(std::string_view name);

/// A new one, which has seen nothing yet. `plan`: how bellowsd makes its plans.
std::unique_ptr<Scheduler> make_scheduler(const SchedulerKind& kind, const ClusterShape& shape,
                                          const SimulationTerms& terms, std::uint32_t seed,
                                          const PlanTerms& plan = {});

}  // namespace bellows
