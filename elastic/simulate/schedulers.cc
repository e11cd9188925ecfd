// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/schedulers.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/text.h"
#include "elastic/simulate/bellowsd.h"
#include "elastic/simulate/elastic.h"
#include "elastic/simulate/optimus.h"
#include "elastic/simulate/pollux.h"
#include "elastic/simulate/sia.h"
#include "elastic/simulate/tiresias.h"

namespace bellows {

const std::vector<SchedulerKind>& scheduler_kinds() {
  static const std::vector<SchedulerKind> kinds = {
      {"elastic", "the optimizer of bellowsd", BatchChoice::submitted, true},
      {"bellowsd", "bellowsd's planner on Slurm, batches as submitted", BatchChoice::submitted,
       true},
      {"pollux", "Pollux (OSDI 2021)", BatchChoice::submitted, false},
      {"sia", "Sia (SOSP 2023), for one type of GPU", BatchChoice::submitted, false},
      {"tiresias", "Tiresias (NSDI 2019), sizes and batches as submitted", BatchChoice::submitted,
       false},
      {"optimus", "Optimus (EuroSys 2018) with an oracle, batches as submitted",
       BatchChoice::submitted, false},
      {"fixed-batch", "sizes by the sum of speed-ups, batches as submitted (2006.13878)",
       BatchChoice::submitted, false},
      {"fixed-batch-initial", "the same with the smallest batch that the contract allows",
       BatchChoice::initial, false},
      {"fixed-batch-largest", "with the largest that was measured", BatchChoice::largest, false},
      {"fixed-batch-random", "with one that is drawn between these", BatchChoice::random, false},
      {"fixed-size", "sizes and batches as submitted, in the order of arrival",
       BatchChoice::submitted, false},
      {"informed", "elastic, with the work that is left of each job known", BatchChoice::submitted,
       true},
  };
  return kinds;
}

Result<SchedulerKind> scheduler_kind(std::string_view name) {
  const auto& kinds = scheduler_kinds();
  const auto kind =
      std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.name == name; });
  if (kind != kinds.end()) return *kind;
  std::string names;
  for (const SchedulerKind& known : kinds)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  return Error{ErrorKind::invalid, fmt::format("there is no scheduler \"{}\"; there are {}",
                                               one_line(name, 40), names)};
}

std::unique_ptr<Scheduler> make_scheduler(const SchedulerKind& kind, const ClusterShape& shape,
                                          const SimulationTerms& terms, std::uint32_t seed,
                                          const PlanTerms& plan) {
  const ObjectiveTerms objective{.restart_s = terms.restart_s};
  if (kind.name == "bellowsd") return make_bellowsd(shape, plan, terms);
  if (kind.name == "pollux")
    return make_pollux(shape, {.seed = seed, .restart_s = terms.restart_s});
  if (kind.name == "sia") return make_sia(shape, terms.restart_s);
  if (kind.name == "tiresias") return make_tiresias(shape);
  if (kind.name == "optimus") return make_optimus(shape);
  if (kind.name.starts_with("fixed-batch")) return make_fixed_batch(shape, terms.restart_s);
  if (kind.name == "fixed-size") return make_fixed_size(shape);
  if (kind.name == "informed") return make_informed(shape, objective);
  return make_elastic(shape, objective);
}

}  // namespace bellows
