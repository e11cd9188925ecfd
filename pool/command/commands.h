// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "launcher/cli/command_line.h"

namespace bellows::pool {

/// Each adds commands to `bellows pool`.
void add_create_command(CommandLine& pool);
void add_start_command(CommandLine& pool);
void add_show_commands(CommandLine& pool);
void add_change_commands(CommandLine& pool);
void add_delete_command(CommandLine& pool);
void add_simulate_command(CommandLine& pool);

/// Says what went wrong, and gives the exit status for it.
int fail(const Error& error);

}  // namespace bellows::pool
