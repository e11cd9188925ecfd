// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

/// The namespaces that a node keeps for its jobs, in RUN_DIR/views:
///   JOB/alive     locked shared by each slurmstepd of the job while it lives
///   JOB/lock      held by the task that builds
///   JOB/ns/NAME   a namespace, pinned: a bind mount of its nsfs file; or a note, a link's text.
///                 A step's own, "step-PID", goes with that slurmstepd: see container_name.h
///   JOB/root      where a container's root is put together, in that container's namespace only
///   JOB/driver    the same for the driver's files
///   JOB/dead      an inode that nobody can open, to hide others' device nodes behind
/// RUN_DIR/views is a private tmpfs, since a namespace can't be pinned below a shared mount, and
/// root's alone. Locks are flock's: the kernel ends them with their holder, however it dies.
///
/// And, as long, RUN_DIR/JOB/user: a small tmpfs of the job's user, who could else fill what
/// RUN_DIR lies on, with the contracts of others.
namespace bellows::container {

/// The user of a job, who owns it in Slurm too.
struct JobOwner {
  uid_t uid;
  gid_t gid;
};

/// A slurmstepd's share in its job's views. Whoever finds that nobody else has one removes what is
/// there: the first one what a crash left, the last one everything. A resource.
class Lease {
 public:
  /// unavailable: another slurmstepd is removing the views and does not come to an end. RUN_DIR/JOB
  /// must be there, for the directory of its owner; a plain job has a file there, and needs none.
  static Result<Lease> take(const std::string& run_dir, std::uint32_t job, JobOwner owner);

  /// Removes the job's views, after `last`, unless another slurmstepd of the job lives. Processes
  /// that are still in a view keep it, without its name, until they end.
  ///
  /// What is denied is tried again, and `last` may be called again with it: from Slurm 24.11 on,
  /// another thread of the extern step's slurmstepd ends X11 forwarding at that time, for which it
  /// and thereby every thread takes on the user's effective ids.
  Status leave(const std::function<void()>& last = {});

 private:
  Status try_leave(const std::function<void()>& last);

  Lease(std::string run_dir, std::uint32_t job, Fd alive)
      : run_dir_(std::move(run_dir)), job_(job), alive_(std::move(alive)) {}

  std::string run_dir_;
  std::uint32_t job_;
  Fd alive_;
};

/// Removes the views of each job that has no living slurmstepd, after `last`.
Status collect_views(const std::string& run_dir,
                     const std::function<void(std::uint32_t job)>& last = {});

/// A flock, held until destruction. A resource.
class Lock {
 public:
  explicit Lock(int fd) : fd_(fd) {}
  Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Lock& operator=(Lock&&) = delete;
  ~Lock();

 private:
  int fd_;  ///< the holder's; duplicates of it share the lock
};

/// One job's views, as its tasks use them: opened by root, used by the job's user, for whom the
/// descriptors are the only way in. A resource.
class JobViews {
 public:
  /// Needs a Lease of this or another process.
  static Result<JobViews> open(const std::string& run_dir, std::uint32_t job);

  /// unavailable: not within the time. The views must outlive the lock.
  Result<Lock> lock(std::chrono::milliseconds limit) const;
  /// The namespace, or an invalid descriptor when it is not pinned.
  Result<Fd> find(const std::string& name) const;
  /// Gives `ns`, a namespace's descriptor, a name. Needs CAP_SYS_ADMIN in the namespace that
  /// opened the views, and CAP_DAC_OVERRIDE.
  Status pin(const std::string& name, int ns) const;
  /// Unpins what a maker that died has pinned under the name. Needs the same.
  Status unpin(const std::string& name) const;
  /// Everything that has a name, notes too. Needs CAP_DAC_OVERRIDE.
  Result<std::vector<std::string>> names() const;
  /// A few words kept beside the namespaces; empty: none. All need CAP_DAC_OVERRIDE.
  Status write_note(const std::string& name, const std::string& text) const;
  Result<std::string> read_note(const std::string& name) const;
  /// For a note that several tasks write alike: not again, and without an error if another did.
  Status keep_note(const std::string& name, const std::string& text) const;
  /// `root`, `driver` or `dead` (O_PATH), in the mount namespace of the caller's that still has
  /// them: the kernel clones and covers only what is in it. Needs CAP_DAC_OVERRIDE.
  Result<Fd> open_place(const char* name) const;

 private:
  std::string path_;
  Fd lock_;  ///< O_PATH would not do for flock, and each task needs an open file of its own
  Fd ns_;
};

}  // namespace bellows::container
