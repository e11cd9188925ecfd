// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace bellows {

/// Each adds one subcommand to `app`. Running it stores its exit status in `exit_status`, which
/// must outlive the parse.
void add_run_command(CLI::App& app, int& exit_status);
void add_resize_command(CLI::App& app, int& exit_status);
void add_status_command(CLI::App& app, int& exit_status);
void add_agent_command(CLI::App& app, int& exit_status);
void add_control_command(CLI::App& app, int& exit_status);
void add_check_config_command(CLI::App& app, int& exit_status);
void add_explain_command(CLI::App& app, int& exit_status);
void add_ckpt_command(CLI::App& app, int& exit_status);
void add_tenants_command(CLI::App& app, int& exit_status);

/// Accepts what parse_job_name does.
CLI::Validator job_name_validator();

}  // namespace bellows
