// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "slurm/interface.h"

namespace bellows {

/// Whether a requeue of the run with this restart count has come true. slurmctld answers that it is
/// done also when the job had just ended, as at its time limit, and then it has done nothing.
inline bool is_requeued(const SlurmJob& now, std::uint32_t restarts) {
  return now.state == SlurmState::pending || now.restarts > restarts;
}

}  // namespace bellows
