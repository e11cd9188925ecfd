// SPDX-License-Identifier: Apache-2.0
#include "launcher/steer/steering.h"

#include <fmt/core.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <array>

#include "launcher/record/job_view.h"

namespace bellows {

CommandFailure Steering::stopped_waiting(const std::string& state) const {
  if (interrupted()) return {kInterrupted, "interrupted: " + state};
  return {kTimedOut, "time is up: " + state};
}

CommandFailure refusal(const SlurmJob& job, const std::string& why) {
  return {kRefused, fmt::format("job {} {}; nothing was changed", job.shown_id(), why)};
}

CommandFailure not_found_failure(const Error& error) {
  return {error.kind == ErrorKind::unavailable ? kUnreachable : kRefused, error.text};
}

std::optional<CommandFailure> check_steerable(const SlurmJob& job, const std::string& verb) {
  if (job.uid != getuid() && getuid() != 0)
    return refusal(job, fmt::format("belongs to {}: only its owner and root can {} it",
                                    user_name(job.uid), verb));
  if (job.kind.cron)
    return refusal(job, "comes from scrontab, and Slurm lets nobody change such jobs");
  if (job.kind.het) return refusal(job, "has several components, whose sizes are fixed");
  if (!job.kind.batch || !job.kind.may_requeue)
    return refusal(job, "cannot be requeued (sbatch --requeue)");
  if (job.finished()) return refusal(job, fmt::format("is over ({})", slurm_state_name(job.state)));
  if (job.state == SlurmState::suspended) return refusal(job, "is suspended");
  auto contract = contract_of(job);
  if (!contract)
    return refusal(job, "has a contract that cannot be read: " + contract.error().text);
  if (!*contract)
    return refusal(job, "has no Bellows contract (submit it with --framework and --gpus-range)");
  return std::nullopt;
}

std::optional<CommandFailure> become_owner(const SlurmJob& job) {
  if (job.uid == getuid()) return std::nullopt;
  std::array<char, 16384> buffer;
  passwd entry;
  passwd* found = nullptr;
  if (getpwuid_r(job.uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found &&
      initgroups(found->pw_name, found->pw_gid) == 0 && setgid(found->pw_gid) == 0 &&
      setuid(job.uid) == 0)
    return std::nullopt;
  return CommandFailure{kRefused,
                        fmt::format("cannot act as {}, who owns job {}; nothing was changed",
                                    user_name(job.uid), job.shown_id())};
}

}  // namespace bellows
