// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/directory_claim.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "checkpoint/store/store_writer.h"

namespace bellows {

DirectoryOwner owner_of(const std::string& checkpoint_dir) {
  const auto text = read_owner(checkpoint_dir);
  const auto owner = text ? parse_owner(*text) : std::nullopt;
  if (!owner) return {};
  return {owner->attempt, RunName::of_attempt(owner->attempt), owner->time};
}

Result<std::optional<std::string>> set_aside_older(const std::string& checkpoint_dir,
                                                   const SlurmJob& job) {
  if (!is_of_older_job(owner_of(checkpoint_dir), job)) return std::optional<std::string>();
  std::string from = checkpoint_dir;
  while (from.size() > 1 && from.ends_with('/')) from.pop_back();
  // No earlier job has used this name.
  const std::string to = fmt::format("{}.before-{}", from, job.times.submit);
  int rc = renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
  // NFS knows no flags. A plain rename replaces no directory that has anything in it.
  if (rc != 0 && (errno == EINVAL || errno == ENOSYS)) rc = std::rename(from.c_str(), to.c_str());
  if (rc == 0) return std::optional(to);
  return Error{
      ErrorKind::denied,
      fmt::format("{} has the checkpoints of an older job with the number {}, and cannot be "
                  "renamed to {}: {}; move it away, or name another directory with "
                  "--checkpoint-dir",
                  from, job.id, to, std::strerror(errno))};
}

}  // namespace bellows
