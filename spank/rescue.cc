// SPDX-License-Identifier: Apache-2.0
#include "spank/rescue.h"

#include <fmt/core.h>

#include <utility>

namespace bellows::spank {

RescuePlan plan_rescue(const BatchEnd& end, const JobView& view) {
  const auto leave = [](std::string reason) { return RescuePlan{Rescue::none, std::move(reason)}; };
  if (view.requeued && (!end.restarts || view.restarts == *end.restarts + 1))
    return view.begin > view.clock ? leave("it is requeued, and its start time is set")
                                   : RescuePlan{Rescue::start_soon, ""};
  if (view.requeued && !view.completing && end.restarts && view.restarts <= *end.restarts)
    return view.begin > view.clock ? leave("slurmctld lost this run, and its launcher saw to that")
                                   : RescuePlan{Rescue::outlast, ""};
  if (!view.running) return leave("Slurm has already ended or requeued it");
  if (end.restarts && view.restarts != *end.restarts)
    return leave(fmt::format("this was its run {}, and slurmctld is at run {}", *end.restarts,
                             view.restarts));
  if (!view.batch_host.empty() && view.batch_host != end.node)
    return leave(fmt::format("its batch script runs on {} now", view.batch_host));
  if (end.rescues >= kMostRescues)
    return leave(fmt::format("it was rescued {} times, the most there are", end.rescues));
  return {Rescue::requeue, ""};
}

}  // namespace bellows::spank
