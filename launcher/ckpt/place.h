// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"

namespace bellows {

/// A committed step in a checkpoint directory.
struct StepPlace {
  std::string dir;
  std::uint64_t step = 0;

  /// The step's own directory.
  std::string path() const;
};

/// Where checkpoints are when the user says nothing: $BELLOWS_CHECKPOINT_DIR, else
/// bellows-checkpoints.
std::string default_checkpoint_dir();

/// `dir`, or the default when it is empty. not_found: there is no such directory.
Result<std::string> find_checkpoint_dir(const std::string& dir);

/// What a user means by a step: a number, the name of its directory or one it was given, all in
/// `dir` (empty: the default); a path of a step's directory, or of a checkpoint directory for its
/// newest step; empty or "latest": the newest committed step in `dir`.
Result<StepPlace> find_step(const std::string& dir, const std::string& text);

}  // namespace bellows
