// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/slurm_client.h"

namespace bellows {

/// Whether a job may begin in a checkpoint directory that another one owns.
enum class Claim {
  free,
  taken,   ///< the owner is not over
  unknown  ///< Slurm did not say: to begin would fence an owner that may be running
};

/// `owner`: what Slurm says of the owner.
inline Claim claim_on(const Result<SlurmJob>& owner) {
  if (owner) return owner->finished() ? Claim::free : Claim::taken;
  return owner.error().kind == ErrorKind::not_found ? Claim::free : Claim::unknown;
}

}  // namespace bellows
