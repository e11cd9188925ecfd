// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

/// Which CPUs a rank gets beside its GPU.
namespace bellows::spank {

using Cpus = std::set<unsigned>;

/// As the kernel writes a set of CPUs: "0-3,8". invalid: it is not written so.
Result<Cpus> parse_cpu_list(std::string_view text);

/// What is known of a node when a step's ranks are bound; the same for all of them. A value.
struct NodeCpus {
  Cpus allowed;             ///< that the step may use
  bool own = false;         ///< `allowed` is the job's alone
  std::vector<Cpus> cores;  ///< those of `allowed`, by core
  std::vector<Cpus> near;  ///< for each GPU of the step, in order: the CPUs on its side of the node
};

/// The CPUs of the rank with this number on its node, where rank i has GPU i: near its GPU, and
/// where they are the job's own, an even share, in whole cores, among the ranks with GPUs on the
/// same side. Nothing, for any rank of the node, unless each GPU's side is known and each rank
/// gets `least` CPUs or more: then Slurm's binding is as good.
std::optional<Cpus> cpus_near_gpu(const NodeCpus& node, unsigned ranks, unsigned rank,
                                  unsigned least);

/// From the sysfs and procfs below `root`, "" for this machine's: the CPUs near each of the GPUs
/// with these minor numbers, in the order of the PCI bus. Empty when one of them is not there.
std::vector<Cpus> cpus_near_gpus(const std::string& root, const std::set<unsigned>& minors);

/// The CPUs of a set by the core they share.
std::vector<Cpus> by_core(const std::string& root, const Cpus& cpus);

}  // namespace bellows::spank
