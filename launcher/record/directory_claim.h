// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "checkpoint/protocol/attempt_name.h"
#include "common/result.h"
#include "slurm/interface.h"

namespace bellows {

/// Whose checkpoint directory it is (owner.json).
struct DirectoryOwner {
  std::string attempt;         ///< empty: nobody's, or it can't be read
  std::optional<RunName> run;  ///< none: no job's
  double time = 0;             ///< when it became the owner, in seconds since 1970
};
DirectoryOwner owner_of(const std::string& checkpoint_dir);

/// Whether the owner is a run of an older job that had the same id as this one, which has not run
/// before: ids come back when slurmctld has lost its state, and from the highest one on.
inline bool is_of_older_job(const DirectoryOwner& owner, const SlurmJob& job) {
  // A requeue changes SubmitTime, so nothing can be concluded about a later run.
  if (job.restarts > 0 || !owner.run || owner.run->job != job.id) return false;
  // The time in owner.json is by the clock of a node, not of slurmctld.
  const bool named = owner.run->submitted > 0;
  const double begun = named ? static_cast<double>(owner.run->submitted) : owner.time;
  return begun < static_cast<double>(job.times.submit);
}

/// Renames what such a job has left at the path, so that this one starts from scratch there; where
/// it is now, or nothing when there is no such thing.
Result<std::optional<std::string>> set_aside_older(const std::string& checkpoint_dir,
                                                   const SlurmJob& job);

/// Whether a job may begin in a checkpoint directory that another run owns.
enum class Claim {
  free,
  taken,   ///< the owner is another job, which is not over
  late,    ///< Slurm has begun this job again
  unknown  ///< Slurm did not say: to begin would fence an owner that may be running
};

/// `owner`: what Slurm says about the owner's job; `run`: what it said about this job when the run
/// began.
inline Claim claim_on(const Result<SlurmJob>& owner, const SlurmJob& run) {
  if (!owner) return owner.error().kind == ErrorKind::not_found ? Claim::free : Claim::unknown;
  if (owner->id == run.id) return is_later_run(*owner, run) ? Claim::late : Claim::free;
  return owner->finished() ? Claim::free : Claim::taken;
}

}  // namespace bellows
