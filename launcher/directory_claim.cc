// SPDX-License-Identifier: Apache-2.0
#include "launcher/directory_claim.h"

#include "checkpoint/store_writer.h"

namespace bellows {

DirectoryOwner owner_of(const std::string& checkpoint_dir) {
  const auto text = read_owner(checkpoint_dir);
  const auto owner = text ? parse_owner(*text) : std::nullopt;
  if (!owner) return {};
  return {owner->attempt, RunName::of_attempt(owner->attempt), owner->time};
}

bool is_of_older_job(const DirectoryOwner& owner, const SlurmJob& job) {
  // A requeue sets SubmitTime anew, so of a later run nothing can be told.
  if (job.restarts > 0 || !owner.run || owner.run->job != job.id) return false;
  // The time in owner.json is by the clock of a node, not of slurmctld.
  const bool named = owner.run->submitted > 0;
  const double begun = named ? static_cast<double>(owner.run->submitted) : owner.time;
  return begun < static_cast<double>(job.submit_time);
}

}  // namespace bellows
