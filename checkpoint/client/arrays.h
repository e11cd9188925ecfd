// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/client/handle.h"
#include "checkpoint/include/bellows.h"

namespace bellows::client {

/// BELLOWS_OK, or the code of what is wrong with it.
int register_array(bellows_t* b, const bellows_array& array);
/// BELLOWS_ERR_INVALID: there is no such array.
int unregister_array(bellows_t* b, const char* name);

/// Bytes of the snapshot buffers that the arrays need.
std::uint64_t buffer_bytes(const bellows_t* b);

/// Copies what this rank stores into a buffer of the agent.
int save_arrays(bellows_t* b, Buffer* buffer);

}  // namespace bellows::client
