// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/fd.h"
#include "common/result.h"
#include "spank/container/phases.h"
#include "spank/container/spec.h"
#include "spank/container/views.h"

namespace bellows::container {

/// What a task of a job is to get. A value.
struct Wanted {
  Spec spec;                ///< without an image: the job's view of the host
  std::uint32_t gpus = 0;   ///< that Slurm gave the task on this node
  std::string cwd;          ///< of the step
  std::string home;         ///< the user's; empty: unknown
  std::string pmix_dir;     ///< where the step's PMIx server listens, in the host's /tmp; or empty
};

/// One task's way into its job's view of the node: opened by root, in task_init_privileged, and
/// gone by the job's user, in task_init, when Slurm's fence around the task's GPUs is up and
/// messages reach the user. A resource.
class TaskEntry {
 public:
  /// As root. Keeps the three capabilities that enter() needs across the change of user.
  static Result<TaskEntry> open(const std::string& run_dir, std::uint32_t job, bool in_container);

  /// As the user, with no other thread in the process. Afterwards the process is in the view, in
  /// the wanted directory, with no capability left. After an error it must not run the program.
  Status enter(const Wanted& wanted, const Site& site, Phases& phases);

 private:
  TaskEntry(JobViews views, Fd host) : views_(std::move(views)), host_(std::move(host)) {}

  Status find_or_build(const std::string& name, const Wanted& wanted, const Site& site,
                       Phases& phases, Fd& found);
  Status build(const std::string& name, const Wanted& wanted, const Site& site, Phases& phases);

  JobViews views_;
  Fd host_;  ///< the host's mount namespace
  Fd base_;  ///< the job's view of the host
};

}  // namespace bellows::container
