// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/read/step_reader.h"
#include "common/result.h"

namespace bellows {

struct NewestStep {
  std::optional<std::uint64_t> step;  ///< the newest that verifies
  std::vector<SkippedStep> skipped;   ///< newer ones that do not, newest first
};

/// All names in a directory, in no order; none when it does not exist.
Result<std::vector<std::string>> list_names(const std::string& dir);

/// The committed steps in DIR, ascending, without a look inside. A missing DIR has none.
Result<std::vector<std::uint64_t>> list_steps(const std::string& dir);

/// A step whose manifest, indexes and files' sizes are as they should be, to be read.
Result<std::shared_ptr<const StepReader>> open_step(const std::string& dir, std::uint64_t step);

/// Reads every file of the step and holds size and digests against the manifest. corrupt or
/// not_found: the sentence names the file.
Result<Manifest> verify_step(const std::string& dir, std::uint64_t step,
                             const Progress& progress = {});

/// How far newest_step goes.
struct Search {
  /// Read every block. Else those are for the restore to verify, and only the manifest, the
  /// indexes and the sizes of the files are looked at.
  bool whole = true;
  std::vector<SkippedStep> bad;  ///< found damaged before: skipped for the reason given
};

/// What is wrong with a step.
using LookAtStep = std::function<Status(std::uint64_t step)>;

/// The newest of ascending steps that is good. Those that are damaged or incomplete are passed
/// over; one that can't be read for another reason, after some tries, is an error: it may be good.
Result<NewestStep> choose_step(const std::vector<std::uint64_t>& steps, const LookAtStep& look);

/// The newest step that verifies. As choose_step; an unreadable DIR is an error, too.
Result<NewestStep> newest_step(const std::string& dir, const Search& search = {});

}  // namespace bellows
