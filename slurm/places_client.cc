// SPDX-License-Identifier: Apache-2.0
#include "slurm/places_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <memory>

#include "common/text.h"
#include "slurm/compat.h"
#include "slurm/error_kind.h"
#include "slurm/gres.h"

namespace bellows {
namespace {

/// Slurm lets nobody reserve a node that a reservation has.
constexpr std::uint32_t kAway = NODE_STATE_DRAIN | NODE_STATE_FAIL | NODE_STATE_NO_RESPOND |
                                NODE_STATE_MAINT | NODE_STATE_RES | NODE_STATE_REBOOT_REQUESTED |
                                NODE_STATE_REBOOT_ISSUED | NODE_STATE_POWERING_DOWN |
                                NODE_STATE_POWERED_DOWN;

std::string text_of(const char* text) { return text ? text : ""; }

Error slurm_error(const std::string& what) {
  const int code = errno;
  const ErrorKind kind =
      code == ESLURM_RESERVATION_INVALID ? ErrorKind::not_found : slurm_error_kind(code);
  return Error{kind, fmt::format("{}: {}", what, slurm_strerror(code))};
}

struct FreeNodes {
  void operator()(node_info_msg_t* message) const { slurm_free_node_info_msg(message); }
};
struct FreeReservations {
  void operator()(reserve_info_msg_t* message) const { slurm_free_reservation_info_msg(message); }
};

bool is_available(std::uint32_t state) {
  const std::uint32_t base = state & NODE_STATE_BASE;
  const bool up =
      base == NODE_STATE_IDLE || base == NODE_STATE_MIXED || base == NODE_STATE_ALLOCATED;
  return up && (state & kAway) == 0;
}

/// Of "gpu:a100:4(S:0-1)"; "" of "gpu:4", and where there are several.
std::string gpu_type_of(std::string_view gres) {
  std::string type;
  for (std::string_view entry : split(gres, ',')) {
    const auto parts = split(entry.substr(0, entry.find('(')), ':');
    if (parts.size() != 3 || parts[0] != "gpu") continue;
    if (!type.empty() && type != parts[1]) return "";
    type = parts[1];
  }
  return type;
}

SlurmNode node_of(const node_info_t& info) {
  SlurmNode node;
  node.name = text_of(info.name);
  const std::string partitions = text_of(info.partitions);
  for (std::string_view partition : split(partitions, ','))
    if (!partition.empty()) node.partitions.emplace_back(partition);
  const std::string gres = text_of(info.gres);
  node.gpus = gpus_in_gres(gres);
  node.gpu_type = gpu_type_of(gres);
  node.available = is_available(info.node_state);
  node.booted = info.boot_time;
  node.lost = (info.node_state & NODE_STATE_BASE) == NODE_STATE_DOWN;
  node.silent = (info.node_state & NODE_STATE_NO_RESPOND) != 0;
  return node;
}

}  // namespace

Result<std::vector<SlurmNode>> PlacesClient::nodes() {
  node_info_msg_t* raw = nullptr;
  if (slurm_load_node(0, &raw, SHOW_ALL) != SLURM_SUCCESS)
    return slurm_error("cannot read the nodes from slurmctld");
  const std::unique_ptr<node_info_msg_t, FreeNodes> message(raw);
  // Without it a node's list of partitions is empty.
  partition_info_msg_t* partitions = nullptr;
  if (slurm_load_partitions(0, &partitions, SHOW_ALL) != SLURM_SUCCESS)
    return slurm_error("cannot read the partitions from slurmctld");
  slurm_populate_node_partitions(message.get(), partitions);
  slurm_free_partition_info_msg(partitions);
  std::vector<SlurmNode> nodes;
  for (std::uint32_t i = 0; i < message->record_count; ++i)
    if (message->node_array[i].name) nodes.push_back(node_of(message->node_array[i]));
  return nodes;
}

Result<std::vector<std::string>> PlacesClient::reservations() {
  reserve_info_msg_t* raw = nullptr;
  if (slurm_load_reservations(0, &raw) != SLURM_SUCCESS)
    return slurm_error("cannot read the reservations from slurmctld");
  const std::unique_ptr<reserve_info_msg_t, FreeReservations> message(raw);
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < message->record_count; ++i)
    names.push_back(text_of(message->reservation_array[i].name));
  return names;
}

Status PlacesClient::reserve(const SlurmReservation& reservation) {
  std::string name = reservation.name;
  std::string nodes = fmt::format("{}", fmt::join(reservation.nodes, ","));
  std::string users = fmt::format("{}", fmt::join(reservation.users, ","));
  resv_desc_msg_t request;
  slurm_init_resv_desc_msg(&request);
  request.name = name.data();
  request.node_list = nodes.data();
  request.users = users.data();
  request.start_time = reservation.begin;
  request.end_time = reservation.end;
  request.flags = RESERVE_FLAG_IGN_JOBS | RESERVE_FLAG_FLEX | RESERVE_FLAG_NO_HOLD_JOBS;
  const std::unique_ptr<char, decltype(&free_reservation_name)> made(
      slurm_create_reservation(&request), &free_reservation_name);
  if (!made) return slurm_error(fmt::format("cannot make reservation {}", name));
  return {};
}

Status PlacesClient::extend(const std::string& name, std::time_t end) {
  std::string copy = name;
  resv_desc_msg_t request;
  slurm_init_resv_desc_msg(&request);
  request.name = copy.data();
  request.end_time = end;
  if (slurm_update_reservation(&request) != SLURM_SUCCESS)
    return slurm_error(fmt::format("cannot extend reservation {}", name));
  return {};
}

Status PlacesClient::unreserve(const std::string& name) {
  std::string copy = name;
  reservation_name_msg_t request = {};
  request.name = copy.data();
  if (slurm_delete_reservation(&request) != SLURM_SUCCESS)
    return slurm_error(fmt::format("cannot delete reservation {}", name));
  return {};
}

}  // namespace bellows
