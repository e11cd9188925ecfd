// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/contract.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows::spank {

/// What a node keeps for each job, in RUN_DIR/JOBID:
///   contract  the job's contract and user, written by job_prolog as root, read by everyone
///   rescues   how often the exit hook requeued the job
///   user/     the job owner's own directory, 0700, for the launcher's sockets, marker and plan:
///             a small file system that container::Lease mounts there while the job is on the node
///
/// For a job without a contract RUN_DIR/JOBID is an empty file, and for a plain job, which has one
/// for its containers alone, a file with that. A job with neither has lost what was kept: whoever
/// takes it for one without a contract runs it unisolated.
///
/// Only `owner` (root, except in tests) may write outside user/; a directory or file that others
/// could have written is refused (denied). user/ is hostile: nothing in it is opened, and links
/// are never followed. A value; safe to use from several processes, since files are replaced
/// atomically.
class JobStore {
 public:
  explicit JobStore(std::string run_dir, uid_t owner = 0)
      : run_dir_(std::move(run_dir)), owner_(owner) {}

  /// Creates what is missing and replaces the contract.
  Status store(std::uint32_t job, uid_t uid, const Contract& contract) const;
  /// Notes that the job has no contract. Nothing else may be kept for it.
  Status store_none(std::uint32_t job) const;

  /// Nothing: the job has no contract. not_found: nothing is kept here. corrupt: something, but
  /// no contract. denied: the file or a directory above it could have been written by others, or
  /// the job of it is not `uid`'s. invalid: the text is not a contract.
  Result<std::optional<Contract>> load(std::uint32_t job, uid_t uid) const;

  /// Removes everything of the job; not_found is success. At most `budget` entries, so that a user
  /// who left a million files can't hold up a job's start: unavailable when some are left.
  Status remove(std::uint32_t job, std::size_t budget = 10000) const;

  /// The user's directory as tasks see it.
  std::string user_dir(std::uint32_t job) const;

  /// Whether a launcher is, or was until it was killed, at work: user/launcher.active is a file.
  bool launcher_active(std::uint32_t job, uid_t uid) const;
  /// The GPUs that the launcher had promised for the next run: what user/launcher.plan, a link that
  /// leads nowhere, names. Whether the job may hold so many is for the caller to know.
  std::optional<std::uint32_t> planned_gpus(std::uint32_t job, uid_t uid) const;
  /// Removes the marker and the plan that an earlier run of the same job left behind.
  void clear_launcher_active(std::uint32_t job, uid_t uid) const;

  /// How often the job was rescued on this node.
  Result<std::uint32_t> rescues(std::uint32_t job) const;
  Status set_rescues(std::uint32_t job, std::uint32_t count) const;

  /// Jobs whose directory was not touched for `seconds`, oldest first, at most `most`.
  std::vector<std::uint32_t> older_than(std::int64_t seconds, std::size_t most) const;
  /// Removes such notes of jobs without a directory that have no living slurmstepd here.
  void forget_none(std::int64_t seconds, std::size_t most) const;
  /// Makes older_than() skip the job for a while.
  void touch(std::uint32_t job) const;

 private:
  std::string job_dir(std::uint32_t job) const;
  Result<Fd> open_run_dir(bool create) const;
  Result<Fd> open_job_dir(std::uint32_t job, bool create) const;
  Result<Fd> open_user_dir(std::uint32_t job, uid_t uid) const;
  Status store_plain(std::uint32_t job, const Contract& contract) const;
  Result<std::optional<Contract>> read_contract(const std::string& path, int fd, uid_t uid) const;
  Status prepare_user_dir(int job_fd, std::uint32_t job) const;
  std::vector<std::uint32_t> aged(mode_t type, std::int64_t seconds, std::size_t most) const;

  std::string run_dir_;
  uid_t owner_;
};

}  // namespace bellows::spank
