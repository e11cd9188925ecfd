// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "common/child.h"
#include "common/result.h"

namespace bellows {

/// What a program wrote, and how it ended.
struct ProgramOutput {
  ChildExit exit;
  std::string out;
  std::string err;
};

/// Runs a program with nothing to read to its end, or to that of the caller. `environment` empty:
/// the caller's. busy: it had not ended after `limit`, and was killed; invalid: it wrote more than
/// `most_bytes`, and was killed; else: it could not be run.
Result<ProgramOutput> output_of(const std::vector<std::string>& command,
                                std::chrono::milliseconds limit, std::size_t most_bytes,
                                std::vector<std::string> environment = {});

}  // namespace bellows
