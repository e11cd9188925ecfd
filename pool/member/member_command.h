// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launcher/cli/command_line.h"

namespace bellows::pool {

/// `bellows pool member -- CMD`: what the batch script of a pool runs.
void add_member_command(CommandLine& pool);

}  // namespace bellows::pool
