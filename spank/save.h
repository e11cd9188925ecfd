// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "spank/container/job_cgroup.h"
#include "spank/container/save_file.h"
#include "spank/container/views.h"

namespace bellows::spank {

/// What of a step is saved. A value.
struct SaveRequest {
  std::string run_dir;
  std::uint32_t job = 0;
  std::string container;  ///< its name among the job's views
  bool on_host = false;   ///< the file is named on the host; else in the job's view of it
  container::JobOwner owner;
  std::vector<gid_t> groups;  ///< the owner's others
  container::SaveFile file;
  std::chrono::seconds limit{600};
  const container::JobCgroup* cgroups = nullptr;  ///< in which it is done; null: the caller's
};

/// As root, in slurmstepd, when the step's last task has ended: has a child with the owner's rights
/// write the container's file tree to the file, without what is mounted in it. Root itself opens
/// nothing that the owner named, and looks up nothing in the container. The child is in
/// the step's cgroups, so what ends the step ends it, and has slurmstepd's umask, which is the
/// step's, and its hard limits, which are the tasks'. Its owner can have it wait for ever, so there
/// is a limit. Says what became of it; empty: no task has come so far as to make the container.
Result<std::string> save_container(const SaveRequest& request);

}  // namespace bellows::spank
