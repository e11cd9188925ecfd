// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// openat2, with O_CLOEXEC added and the kernel's RESOLVE_ flags.
Result<Fd> open_resolved(int dir, const std::string& path, int flags, std::uint64_t resolve,
                         mode_t mode = 0);

/// Opens a directory of `parent` for reading: no link, and nothing that is mounted there.
Result<Fd> open_child(int parent, const std::string& name);

}  // namespace bellows
