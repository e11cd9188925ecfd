// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/record/event_log.h"

namespace bellows {

/// Runs of a job do not know of each other but by the history: this is how one that has come to
/// nothing tells the next, so that a job does not come back for ever.

/// The cause of a requeue after a run that has committed nothing.
std::string fruitless_cause(const std::string& cause);
/// How many such runs there were in a row, up to the newest event.
std::uint32_t fruitless_runs(const std::vector<JobEvent>& events);

}  // namespace bellows
