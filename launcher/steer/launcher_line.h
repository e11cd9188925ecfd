// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "slurm/job.h"

namespace bellows {

/// A conversation with a job's launcher, which has begun with a demand: a step of the job passes it
/// on; unit tests have a fake. The destructor cuts it off.
class LauncherLine {
 public:
  struct Heard {
    std::vector<std::string> lines;
    bool open = true;  ///< more can come
  };

  LauncherLine() = default;
  LauncherLine(const LauncherLine&) = delete;
  LauncherLine& operator=(const LauncherLine&) = delete;
  virtual ~LauncherLine() = default;

  /// What the launcher said since; waits for some of it, but never long.
  virtual Heard listen() = 0;
  /// Tells the other end that nothing more comes, so that it ends by itself.
  virtual void hang_up() = 0;
  /// The exit status of what passed it on, once that has ended; never waits.
  virtual std::optional<int> exit_code() = 0;
  /// The first that was written on standard error.
  virtual std::optional<std::string> complaint() = 0;
};

/// Begins a conversation with the launcher of a job. `demand`: its first line, a JSON object.
using CallLauncher = std::function<Result<std::unique_ptr<LauncherLine>>(
    const SlurmJob& job, const std::string& demand)>;

}  // namespace bellows
