// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/record/event_log.h"

namespace bellows {

/// How many runs in a row came to nothing, up to the newest event. Runs of a job do not know of
/// each other but by the history: this keeps a job from restarting forever.
std::uint32_t fruitless_runs(const std::vector<JobEvent>& events);

}  // namespace bellows
