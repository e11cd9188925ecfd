// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace bellows {

/// A rule that had a say in a decision, and what it found: for people who ask why.
struct TraceStep {
  std::string rule;   ///< "tenant", "first size"
  std::string found;  ///< one line; for the rule that refused, its sentence
};

/// In the order in which the rules were applied. A decision without a trace costs nothing extra.
using Trace = std::vector<TraceStep>;

}  // namespace bellows
