// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "launcher/cli/command_line.h"

namespace bellows::image {

void add_import_command(CommandLine& program);
/// list, verify and remove.
void add_keep_commands(CommandLine& program);

/// Says the error, and returns the exit status for it.
int fail(const Error& error);

}  // namespace bellows::image
