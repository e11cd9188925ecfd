// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/store/retention.h"
#include "checkpoint/system/file_ops.h"
#include "common/result.h"
#include "launcher/ckpt/progress.h"

namespace bellows {

/// What a retention would remove from a directory.
struct PrunePlan {
  std::vector<std::uint64_t> remove;  ///< oldest first
  std::vector<std::uint64_t> keep;
  std::set<std::uint64_t> bad;                  ///< those looked at that don't verify
  std::map<std::uint64_t, std::string> unread;  ///< those that could not be read, and why
  std::string owner;                            ///< owner.json as it was
};

/// Verifies the newest steps until as many are good as are to be kept.
Result<PrunePlan> plan_prune(const std::string& dir, const Retention& retention,
                             ProgressBar& progress);

/// Removes the plan's steps under the store's lock, and what interrupted removals had left. busy: a
/// program uses the directory, or came to own it since the plan was made; nothing was removed.
/// `removed` is told each step. An interrupt ends it between two steps.
Status run_prune(FileOps& ops, const std::string& dir, const PrunePlan& plan,
                 const std::function<void(std::uint64_t)>& removed);

/// busy: a job that runs owns the directory; unavailable: Slurm does not say.
Status check_no_job_runs(const std::string& dir);

}  // namespace bellows
