// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>

#include "common/result.h"
#include "launcher/ckpt/commands.h"

namespace bellows {

constexpr std::size_t kAnyNumber = std::numeric_limits<std::size_t>::max();

/// Decides what the first word is: a job or a directory when there are more words than can name
/// steps, or when there need be none and nothing else says which directory is meant; else it is the
/// first of those that name steps. `least`, `most`: so many words name steps.
void settle_words(CkptOptions& options, std::size_t least, std::size_t most);

/// Fills in the directory of the job that was named, if one was.
Status find_job_dir(CkptOptions& options);

}  // namespace bellows
