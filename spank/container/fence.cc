// SPDX-License-Identifier: Apache-2.0
#include "spank/container/fence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/text.h"

namespace bellows::container {
namespace {

struct Count {
  std::vector<std::string> allowed;
  std::vector<std::string> by_mode;
  std::uint64_t fenced = 0;

  std::uint64_t all() const { return allowed.size() + by_mode.size() + fenced; }
};

Count count(const std::vector<GpuNode>& nodes) {
  Count count;
  for (const GpuNode& node : nodes) {
    if (node.kind != GpuNode::Kind::gpu) continue;
    if (node.access == DeviceAccess::allowed) count.allowed.push_back("/dev/" + node.name);
    if (node.access == DeviceAccess::by_mode) count.by_mode.push_back("/dev/" + node.name);
    if (node.access == DeviceAccess::fenced) ++count.fenced;
  }
  return count;
}

std::string gpus(std::uint64_t number) { return counted(number, "GPU"); }

/// A task that is bound to some of its step's GPUs is fenced from more than the others' GPUs; then
/// a node closed by its mode may well be one that it was not to have.
bool own_one_closed(const Count& count, std::uint64_t given) {
  if (count.by_mode.empty() || count.allowed.size() >= given) return false;
  return count.allowed.empty() || count.fenced + given <= count.all();
}

}  // namespace

Result<std::uint64_t> gpus_given(std::optional<std::string_view> gpus_on_node,
                                 std::optional<std::uint64_t> most) {
  if (!gpus_on_node) return std::uint64_t{0};
  const auto number = parse_uint(*gpus_on_node);
  if (!number)
    return Error{ErrorKind::invalid,
                 fmt::format("SLURM_GPUS_ON_NODE is \"{}\", not a number: slurmstepd did not write "
                             "it; leave it unset when starting the step",
                             gpus_on_node->substr(0, 32))};
  return std::min(*number, most.value_or(*number));
}

Status check_fence(const std::vector<GpuNode>& nodes, std::uint64_t given) {
  const Count found = count(nodes);
  if (found.allowed.size() > given)
    return Error{ErrorKind::denied,
                 fmt::format("this node does not fence GPUs: Slurm gave this step {} here, but {} "
                             "can be opened ({}); the administrator must set ConstrainDevices=yes "
                             "in cgroup.conf and TaskPlugin=task/cgroup in slurm.conf, and name "
                             "every GPU's file in gres.conf (or set require_fence=no in "
                             "plugstack.conf)",
                             gpus(given), found.allowed.size(), fmt::join(found.allowed, ", "))};
  if (own_one_closed(found, given))
    return Error{ErrorKind::denied,
                 fmt::format("Slurm gave this step {} here, but the owner and mode of {} keep this "
                             "user out; the administrator must open it to all users (mode 0666); "
                             "the device cgroup does the fencing",
                             gpus(given), fmt::join(found.by_mode, ", "))};
  return {};
}

}  // namespace bellows::container
