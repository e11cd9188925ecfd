// SPDX-License-Identifier: Apache-2.0
#include "spank/rescue.h"

#include <fmt/format.h>

namespace bellows::spank {

std::string reason_against_rescue(const BatchEnd& end, const JobView& view) {
  if (!view.running) return "Slurm has already ended or requeued it";
  if (view.restarts != end.restarts)
    return fmt::format("this was its run {}, and slurmctld is at run {}", end.restarts,
                       view.restarts);
  if (!view.batch_host.empty() && view.batch_host != end.node)
    return fmt::format("its batch script runs on {} now", view.batch_host);
  if (end.rescues >= kMostRescues)
    return fmt::format("it was rescued {} times, the most there are", end.rescues);
  return "";
}

}  // namespace bellows::spank
