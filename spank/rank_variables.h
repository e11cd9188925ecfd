// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/launch_kind.h"
#include "common/result.h"
#include "spank/environment.h"

/// What a rank is told by its launch kind, also in an image that has nothing of ours.
namespace bellows::spank {

/// A task's place in its step, as slurmstepd knows it. A value.
struct RankPlace {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint32_t local_rank = 0;
  std::uint32_t local_world = 1;
  std::uint32_t node = 0;
  std::uint32_t nodes = 1;
};

/// How this node reaches the others. A value.
struct Fabric {
  std::string interface;    ///< that has the node's address in Slurm; empty: not known
  bool infiniband = false;  ///< devices that the task can open (InfiniBand, RoCE)
};

/// `root` as of the task, "" for its own; `peer`: an address of Slurm's on another node.
Fabric find_fabric(const std::string& root, const std::string& peer);

/// torch: what torchrun sets, whatever the environment said before, and OMP_NUM_THREADS unless it
/// is set. The rest of `torch`, and nccl: variables of NCCL and Gloo that are not set yet. plain:
/// of each list of the node's GPUs, the rank's own.
std::vector<Change> rank_variables(LaunchKind kind, const RankPlace& place, const Fabric& fabric,
                                   const Lookup& lookup);

/// Those by which the launcher told the plugin: no program's to see, or a step that it starts would
/// be told the same.
std::vector<Change> no_launch_variables();

/// Whether the launcher said where rank 0 listens. invalid: says what is wrong.
Status check_master(const Lookup& lookup);

}  // namespace bellows::spank
