// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/client/env.h"
#include "checkpoint/client/socket.h"

namespace bellows::client {

/// Connects to this node's agent, outside a job starting one when there is none, and says hello.
/// On success `control` is the rank's page, `socket` the connection and `memory` what the agent may
/// use for this rank. Tries for 30 seconds.
int join_agent(Place* place, Handle* socket, Mapping* control, std::uint64_t* memory,
               ErrorText* error);

}  // namespace bellows::client
