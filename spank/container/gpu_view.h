// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "spank/container/devices.h"
#include "spank/container/gpu_nodes.h"

/// What a process sees of the host's GPUs. A view only: what keeps others out is the device cgroup.
namespace bellows::container {

/// A value.
struct GpuView {
  std::vector<std::string> shown;   ///< below /dev: the process's GPUs and, if any, their controls
  std::vector<std::string> hidden;  ///< below /dev: the GPUs of others
  std::vector<unsigned> minors;     ///< of the process's GPUs

  bool operator==(const GpuView&) const = default;
};

GpuView plan_view(const std::vector<GpuNode>& nodes);

/// In a mount namespace of the caller's own: puts a clone of `dead`, an O_PATH descriptor of an
/// empty file of root's with mode 000, over each of `names` in `dev`, an O_PATH descriptor of that
/// namespace's /dev. Names that aren't there are skipped. Both descriptors must have been
/// opened in this namespace: the kernel does not clone another one's mounts.
Status hide_nodes(int dev, const std::vector<std::string>& names, int dead);

/// For a container's /dev: clones of `names` in `dev`, an O_PATH descriptor of the host's /dev.
Result<std::vector<Device>> clone_nodes(int dev, const std::vector<std::string>& names);

/// Covers driver/nvidia in `proc`, an O_PATH descriptor of /proc, with a read-only directory of the
/// driver's version, its parameters with ModifyDeviceFiles: 0 (else libcuda, as root in a user
/// namespace, tries to make nodes), and gpus/ and capabilities/ of only those GPUs. An earlier
/// cover is taken away first, so a task with other GPUs than those for which a container was made
/// gets its own; that changes the working directory. Without a driver there is nothing to do.
Status cover_driver_proc(int proc, const std::vector<unsigned>& minors);

}  // namespace bellows::container
