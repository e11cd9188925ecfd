// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "checkpoint/client/handle.h"

namespace bellows::client {

/// Asks the agent for the arrays and puts them where they belong: what it has read, and the blocks
/// that it says where to read. BELLOWS_NO_CHECKPOINT: there is none.
int restore(bellows_t* b, std::uint64_t* step);

}  // namespace bellows::client
