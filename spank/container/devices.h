// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/container/spec.h"
#include "common/fd.h"
#include "common/result.h"

/// A container's /dev: a few nodes of the host's, each bound by itself, on file systems where no
/// other node works. What the cgroup refuses stays refused: this is the view, not the fence.
namespace bellows::container {

/// A device node of the host's, cloned and not yet mounted. A resource.
struct Device {
  std::string name;  ///< below /dev: "null", "infiniband/uverbs0"
  Fd mount;
};

/// A node below the host's /dev, by its name there; links are not followed. nosuid and noexec.
Result<Device> open_device(const std::string& name);

/// null, zero and the other standard nodes, which must exist, and those that `site.devices` name
/// (patterns as glob(7) has them, "/dev/infiniband/*"; what they find that is not a device node is
/// skipped). `console`: the path of the step's terminal, which becomes /dev/console; or empty.
Result<std::vector<Device>> open_devices(const Site& site, const std::string& console);

/// Binds a node of open_device's kind in a container's /dev, making the directories of its name.
Status add_device(int dev_dir, const std::string& name, int node_mount);

/// The file system of a container's /dev, detached; the caller's own until it is made read-only.
Result<Fd> new_dev();

/// Fills new_dev()'s, mounted by now: devices, links, terminals of its own, and `shm` (a detached
/// mount) as /dev/shm.
Status fill_dev(int dev_dir, const std::vector<Device>& devices, int shm);

}  // namespace bellows::container
