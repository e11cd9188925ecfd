// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace bellows {

/// Kills what runs on this node of an attempt's ranks, going by BELLOWS_ATTEMPT in their
/// environment: for a node on which Slurm cannot be reached. Leaves srun, which signals those on
/// other nodes.
void kill_ranks_here(const std::string& attempt);

}  // namespace bellows
