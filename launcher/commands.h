// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace bellows {

/// Each adds one subcommand to `app`. Running it stores its exit status in `exit_status`, which
/// must outlive the parse.
void add_status_command(CLI::App& app, int& exit_status);

}  // namespace bellows
