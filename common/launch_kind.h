// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace bellows {

/// How the ranks of a program are started, and by what they find one another.
enum class LaunchKind {
  mpi,    ///< PMIx
  nccl,   ///< PMIx, and the environment of NCCL
  torch,  ///< what torchrun sets, and the environment of NCCL and Gloo
  plain,  ///< nothing: each rank has a GPU to itself
  ps      ///< one rank, bellows-ps, which has all GPUs and starts a learner for each
};

inline constexpr std::array kLaunchKinds = {LaunchKind::mpi, LaunchKind::nccl, LaunchKind::torch,
                                            LaunchKind::plain, LaunchKind::ps};

/// As bellows.yaml and --kind write it.
std::string_view launch_kind_name(LaunchKind kind);
/// Nothing for a text that names none.
std::optional<LaunchKind> parse_launch_kind(std::string_view name);

/// The kind of a step, from `bellows run` to the SPANK plugin in the step's tasks, and for the kind
/// torch where rank 0 shall listen: an address and a port.
inline constexpr const char* kLaunchVariable = "BELLOWS_LAUNCH";
inline constexpr const char* kMasterAddrVariable = "BELLOWS_MASTER_ADDR";
inline constexpr const char* kMasterPortVariable = "BELLOWS_MASTER_PORT";
/// Set for the ranks whose CPUs the plugin shall choose, to kBindNear.
inline constexpr const char* kBindVariable = "BELLOWS_CPU_BIND";
inline constexpr const char* kBindNear = "near";

}  // namespace bellows
