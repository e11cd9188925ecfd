// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>

namespace bellows::spank {

/// The addresses of the node's GPUs on the PCI bus, "0000:3b:00.0", by the minor numbers of their
/// device nodes, as ROOT/proc/driver/nvidia/gpus has them. Nothing without a driver.
std::map<unsigned, std::string> gpu_addresses(const std::string& root);

/// Those of GPUs that are not divided: parts of one (MIG) share its address, and belong to others.
std::map<unsigned, std::string> whole_gpus(const std::string& root);

/// The minor numbers of GPUs that the kernel lets this process open.
std::set<unsigned> open_gpus();

}  // namespace bellows::spank
