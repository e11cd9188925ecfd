// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

/// The cgroups of a job, for a process that several of its steps need. Slurm ends what is in a
/// step's cgroups with the step, and what is in those of the extern step as soon as it tells the
/// job to end, while the job's tasks still have time to store their state.
namespace bellows::container {

/// A resource.
class JobCgroup {
 public:
  JobCgroup() = default;

  /// As root. `cgroups`: the job's own among the lines of a /proc/PID/cgroup. In cgroup v2, where
  /// none that has others below it can hold a process, one is made for this. False afterwards: it
  /// can't be had, or not for each of the hierarchies.
  static JobCgroup open(const std::vector<std::string>& cgroups);

  /// As root: those that a process is in and the caller is not.
  static Result<JobCgroup> of(pid_t process);

  explicit operator bool() const { return !files_.empty(); }

  /// Moves this process, which may be any user's by now. errno says why not.
  bool enter() const { return admit(0); }
  /// The same for a process of the caller's; 0: this one.
  bool admit(pid_t pid) const;

 private:
  std::vector<Fd> files_;  ///< cgroup.procs: the kernel asks for the rights of who opened it
};

/// Those of the cgroups in which enter() puts processes, if all of them have some.
std::vector<std::string> entered_cgroups(const std::vector<std::string>& cgroups);

/// As root, once the processes in it have ended: removes what open() made.
void remove_job_cgroup(const std::vector<std::string>& cgroups);

/// Where the cgroup of a line "4:freezer:/slurm/job_7" is, by a /proc/PID/mountinfo; empty:
/// nowhere.
std::string cgroup_path(std::string_view line, std::string_view mountinfo);

}  // namespace bellows::container
