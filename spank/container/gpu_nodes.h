// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace bellows::container {

/// What the kernel says to this process about a device node.
enum class DeviceAccess {
  allowed,
  fenced,   ///< the device cgroup refuses it (EPERM)
  by_mode,  ///< the file's owner and mode refuse it (EACCES); what the cgroup says is then unknown
};

/// A device node of the NVIDIA driver. A value.
struct GpuNode {
  enum class Kind { gpu, control };

  std::string name;  ///< below /dev: "nvidia0", "nvidia-caps/nvidia-cap1"
  Kind kind = Kind::gpu;
  unsigned minor = 0;
  DeviceAccess access = DeviceAccess::fenced;

  bool operator==(const GpuNode&) const = default;
};

/// The driver's nodes in ROOT/dev: the GPUs by minor, then what controls all of them (nvidiactl,
/// nvidia-uvm, nvidia-caps/...). Not nvidia-caps-imex-channels/..., by which machines share
/// memory: a container has those that `site.devices` names. None without a driver. The answers hold
/// for this process, its user and its cgroup, and what a program started by it without capabilities
/// would hear.
Result<std::vector<GpuNode>> find_gpu_nodes(const std::string& root);

/// Asks whether an O_PATH descriptor's node may be opened, without opening it: that would wake an
/// idle GPU, for up to a second. Reading alone is enough to be allowed: the driver's calls are
/// ioctls, and nodes of MIG have mode 0444.
Result<DeviceAccess> ask_access(int node, const std::string& path);

}  // namespace bellows::container
