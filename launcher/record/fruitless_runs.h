// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/record/event_log.h"

namespace bellows {

/// How many runs in a row, up to the newest event, ended without progress. Runs of a job know of
/// each other only through the history: this count keeps a job from restarting forever.
std::uint32_t fruitless_runs(const std::vector<JobEvent>& events);

}  // namespace bellows
