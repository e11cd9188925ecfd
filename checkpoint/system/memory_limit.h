// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace bellows {

/// Bytes of memory this process and its children may still take: what the machine has left, and
/// what each memory cgroup above the process (version 1 or 2) leaves below its limit. Page cache
/// that can be dropped counts as free. `root`: where to find /proc and /sys; "" but for tests.
std::uint64_t available_memory(const std::string& root = "");

}  // namespace bellows
