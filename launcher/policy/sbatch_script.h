// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows {

/// What a batch script says in its #SBATCH lines.
struct ScriptOptions {
  std::vector<std::string> arguments;
  bool heterogeneous = false;  ///< it has parts, divided by "#SBATCH hetjob"; these are the first's
};

/// Reads #SBATCH lines as sbatch does: only before the first command, with quotes and backslashes
/// as in a shell, and up to a # that begins a word.
/// invalid: "line N: what is wrong"
Result<ScriptOptions> script_options(std::string_view script);

}  // namespace bellows
