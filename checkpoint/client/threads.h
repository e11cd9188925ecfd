// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bellows::client {

/// What this process may run on.
int processors();

/// Calls `work` with the argument from this thread and at most `helpers` others, and comes back
/// when all have; without others where the program has no threads. `work` may use nothing that a
/// thread of the program owns.
void run_side_by_side(void (*work)(void* argument), void* argument, int helpers);

}  // namespace bellows::client
