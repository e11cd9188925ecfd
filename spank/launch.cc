// SPDX-License-Identifier: Apache-2.0
#include "spank/launch.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "common/contract.h"
#include "common/text.h"
#include "spank/cpu_binding.h"
#include "spank/gpu_addresses.h"
#include "spank/rank_variables.h"
#include "spank/step_environment.h"

namespace bellows::spank {
namespace {

/// Only jobs with a contract are ours to touch, and only slurmstepd sets their variable.
bool is_ours(spank_t spank) {
  return environment(spank, Contract::kVariable) && environment(spank, kLaunchVariable);
}

std::optional<RankPlace> place_of(spank_t spank) {
  RankPlace place;
  std::uint32_t node_tasks = 0;
  int local = 0;
  if (spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS || local < 0 ||
      spank_get_item(spank, S_TASK_GLOBAL_ID, &place.rank) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &place.world) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &node_tasks) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_NODEID, &place.node) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_NNODES, &place.nodes) != ESPANK_SUCCESS)
    return std::nullopt;
  place.local_rank = static_cast<std::uint32_t>(local);
  place.local_world = node_tasks;
  return place;
}

/// Nothing on a machine with more CPUs than cpu_set_t holds.
std::optional<Cpus> affinity() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return std::nullopt;
  Cpus cpus;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.insert(cpu);
  return cpus;
}

bool set_affinity(const Cpus& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned cpu : cpus)
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

/// All that the step's cpuset lets this process have, whatever Slurm bound it to.
std::optional<Cpus> widest() {
  Cpus all;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) all.insert(cpu);
  if (!set_affinity(all)) return std::nullopt;
  return affinity();
}

std::uint64_t number(spank_t spank, const char* name) {
  return parse_uint(environment(spank, name).value_or("")).value_or(0);
}

/// `bound`: by Slurm. Nothing: it must stay as it is.
std::optional<Cpus> choose_cpus(spank_t spank, const RankPlace& place, const Cpus& bound) {
  NodeCpus node;
  node.near = cpus_near_gpus("", open_gpus());
  if (node.near.empty()) return std::nullopt;
  const auto allowed = widest();
  if (!allowed) return std::nullopt;
  node.allowed = *allowed;
  const auto online = static_cast<std::size_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L));
  const bool fenced = allowed->size() < online;
  // Without cpusets only Slurm's binding keeps jobs apart; without either, a share of the node
  // would be one of every other job's too, unless this job has it all.
  if (!fenced && bound != *allowed) return std::nullopt;
  node.own = fenced || number(spank, "SLURM_CPUS_ON_NODE") >= online;
  node.cores = by_core("", node.allowed);
  return cpus_near_gpu(node, place.local_world, place.local_rank,
                       static_cast<unsigned>(number(spank, "SLURM_CPUS_PER_TASK")));
}

void tell(const Status& status) {
  if (status.ok()) return;
  const std::string line = fmt::format("slurmstepd: error: bellows: {}\n", status.error().text);
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void bind_rank(spank_t spank) {
  if (!is_ours(spank) || environment(spank, kBindVariable) != kBindNear) return;
  const auto place = place_of(spank);
  const auto bound = affinity();
  if (!place || !bound) return;
  const auto cpus = choose_cpus(spank, *place, *bound);
  if (!set_affinity(cpus.value_or(*bound)) && !set_affinity(*bound))
    slurm_error("bellows: a rank's CPUs cannot be bound; it may use all of its step's");
}

void tell_rank(spank_t spank) {
  if (!is_ours(spank)) return;
  const auto kind = parse_launch_kind(environment(spank, kLaunchVariable).value_or(""));
  const auto place = place_of(spank);
  const auto lookup = [spank](const std::string& name) { return environment(spank, name); };
  std::vector<Change> changes;
  if (kind && place) {
    Fabric fabric;
    if (*kind == LaunchKind::nccl || *kind == LaunchKind::torch)
      fabric = find_fabric("", lookup("SLURM_LAUNCH_NODE_IPADDR").value_or(""));
    changes = rank_variables(*kind, *place, fabric, lookup);
    if (*kind == LaunchKind::torch && place->local_rank == 0) tell(check_master(lookup));
  }
  for (const Change& change : no_launch_variables()) changes.push_back(change);
  for (const Change& change : changes) {
    unset_all(spank, change.name);
    if (change.value &&
        spank_setenv(spank, change.name.c_str(), change.value->c_str(), 1) != ESPANK_SUCCESS)
      slurm_error("bellows: cannot set %s in a rank's environment", change.name.c_str());
  }
}

}  // namespace bellows::spank
