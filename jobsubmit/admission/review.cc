// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/admission/review.h"

#include <fmt/core.h>

#include <utility>

namespace bellows {

bool Review::refuse(Refusal why, std::string message) {
  decision.refused = why;
  decision.message = std::move(message);
  return false;
}

void Review::note(std::string_view text) {
  if (!decision.message.empty()) decision.message += "; ";
  decision.message += text;
}

/// The tenant's own range is for jobs that can be resized. Other jobs never asked for a range, so
/// they are not refused because of it.
bool Review::takes_default_range() const {
  const Sizes& sizes = request.sizes;
  return limits->range && !asked && request.batch && !request.requeue_off &&
         !sizes.tasks_per_node && sizes.tasks_per_gpu.value_or(1) == 1;
}

std::string Review::jobs_of_tenant() const {
  return limits == &tenant->gpus ? fmt::format("a job of tenant {}", tenant->name)
                                 : fmt::format("a job of tenant {} with framework {}", tenant->name,
                                               decision.contract.framework);
}

}  // namespace bellows
