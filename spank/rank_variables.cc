// SPDX-License-Identifier: Apache-2.0
#include "spank/rank_variables.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "common/device_lists.h"
#include "common/local_address.h"
#include "common/text.h"

namespace bellows::spank {
namespace {

constexpr std::size_t kMostAddress = 255;

bool has_entries(const std::string& directory) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(directory, error);
  return !error && entries != std::filesystem::directory_iterator();
}

bool is_address(std::string_view text) {
  return !text.empty() && text.size() <= kMostAddress &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_alphanumeric(c) || c == '.' || c == ':' || c == '-' || c == '_';
         });
}

bool is_port(std::string_view text) {
  const auto port = parse_uint(text);
  return port && *port > 0 && *port <= UINT16_MAX;
}

void unless_set(std::vector<Change>& changes, const Lookup& lookup, const char* name,
                std::string value) {
  if (!lookup(name)) changes.push_back({name, std::move(value)});
}

/// As torch/distributed/elastic/agent/server/local_elastic_agent.py does, but for what belongs to
/// its own restarts.
void add_torch(std::vector<Change>& changes, const RankPlace& place, const Lookup& lookup) {
  const auto set = [&](const char* name, std::uint32_t value) {
    changes.push_back({name, std::to_string(value)});
  };
  set("RANK", place.rank);
  set("WORLD_SIZE", place.world);
  set("LOCAL_RANK", place.local_rank);
  set("LOCAL_WORLD_SIZE", place.local_world);
  set("GROUP_RANK", place.node);
  set("GROUP_WORLD_SIZE", place.nodes);
  set("ROLE_RANK", place.rank);
  set("ROLE_WORLD_SIZE", place.world);
  changes.push_back({"ROLE_NAME", "default"});
  const bool told = check_master(lookup).ok();
  changes.push_back({"MASTER_ADDR", told ? lookup(kMasterAddrVariable) : std::nullopt});
  changes.push_back({"MASTER_PORT", told ? lookup(kMasterPortVariable) : std::nullopt});
  // Without it each rank starts a thread for each CPU of the node.
  const auto cpus = parse_uint(lookup("SLURM_CPUS_ON_NODE").value_or(""));
  const std::uint64_t share = cpus.value_or(1) / std::max(place.local_world, 1u);
  unless_set(changes, lookup, "OMP_NUM_THREADS", std::to_string(std::max<std::uint64_t>(share, 1)));
}

/// Without these, NCCL takes the first interface that is not a bridge's of Docker, and Gloo the one
/// of the host's name, which is often the loopback's: neither need lead to the other nodes.
void add_fabric(std::vector<Change>& changes, LaunchKind kind, const RankPlace& place,
                const Fabric& fabric, const Lookup& lookup) {
  if (place.nodes > 1 && !fabric.interface.empty()) {
    // "=": NCCL would take "eth1" for a prefix, and use eth10 too.
    unless_set(changes, lookup, "NCCL_SOCKET_IFNAME", "=" + fabric.interface);
    if (kind == LaunchKind::torch)
      unless_set(changes, lookup, "GLOO_SOCKET_IFNAME", fabric.interface);
  }
  // Nothing to look for, and no warnings of a library of verbs that finds nothing.
  if (!fabric.infiniband) unless_set(changes, lookup, "NCCL_IB_DISABLE", "1");
}

void add_own_gpu(std::vector<Change>& changes, const RankPlace& place, const Lookup& lookup) {
  const auto names_any = [&](const char* list) { return !lookup(list).value_or("").empty(); };
  const bool cuda = names_any("CUDA_VISIBLE_DEVICES"), rocr = names_any("ROCR_VISIBLE_DEVICES");
  for (const char* name : kDeviceLists) {
    const auto all = lookup(name);
    const DeviceShare share = device_share(name, cuda, rocr);
    if (!all || share == DeviceShare::whole) continue;
    const auto devices = split(*all, ',');
    if (devices.size() == place.local_world && place.local_rank < devices.size())
      changes.push_back(
          {name, share == DeviceShare::first ? "0" : std::string(devices[place.local_rank])});
  }
}

}  // namespace

Fabric find_fabric(const std::string& root, const std::string& peer) {
  Fabric fabric;
  fabric.infiniband =
      has_entries(root + "/sys/class/infiniband") && has_entries(root + "/dev/infiniband");
  if (const auto address = address_towards(peer))
    if (auto interface = interface_with(*address)) fabric.interface = *std::move(interface);
  return fabric;
}

std::vector<Change> rank_variables(LaunchKind kind, const RankPlace& place, const Fabric& fabric,
                                   const Lookup& lookup) {
  std::vector<Change> changes;
  if (kind == LaunchKind::torch) add_torch(changes, place, lookup);
  if (kind == LaunchKind::torch || kind == LaunchKind::nccl)
    add_fabric(changes, kind, place, fabric, lookup);
  if (kind == LaunchKind::plain) add_own_gpu(changes, place, lookup);
  return changes;
}

std::vector<Change> no_launch_variables() {
  std::vector<Change> changes;
  for (const char* name :
       {kLaunchVariable, kMasterAddrVariable, kMasterPortVariable, kBindVariable})
    changes.push_back({name, std::nullopt});
  return changes;
}

Status check_master(const Lookup& lookup) {
  if (!is_address(lookup(kMasterAddrVariable).value_or("")))
    return Error{ErrorKind::invalid,
                 fmt::format("{} is not an address; MASTER_ADDR and MASTER_PORT are not set",
                             kMasterAddrVariable)};
  if (!is_port(lookup(kMasterPortVariable).value_or("")))
    return Error{ErrorKind::invalid,
                 fmt::format("{} is not a port; MASTER_ADDR and MASTER_PORT are not set",
                             kMasterPortVariable)};
  return {};
}

}  // namespace bellows::spank
