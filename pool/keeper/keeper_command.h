// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launcher/cli/command_line.h"

namespace bellows::pool {

/// `bellows pool keeper NAME`: what the job of a pool's keeper runs.
void add_keeper_command(CommandLine& pool);

}  // namespace bellows::pool
