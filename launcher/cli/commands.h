// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "launcher/cli/command_line.h"

namespace bellows {

/// Each adds one command to the program.
void add_run_command(CommandLine& program);
void add_halt_command(CommandLine& program);
void add_resume_command(CommandLine& program);
void add_history_command(CommandLine& program);
void add_logs_command(CommandLine& program);
void add_resize_command(CommandLine& program);
void add_status_command(CommandLine& program);
void add_agent_command(CommandLine& program);
void add_control_command(CommandLine& program);
void add_check_config_command(CommandLine& program);
void add_explain_command(CommandLine& program);
void add_ckpt_command(CommandLine& program);
void add_tenants_command(CommandLine& program);
void add_plan_command(CommandLine& program);
void add_simulate_command(CommandLine& program);
void add_model_command(CommandLine& program);
void add_pool_command(CommandLine& program);
void add_image_command(CommandLine& program);
void add_container_command(CommandLine& program);
void add_setup_command(CommandLine& program);
void add_completion_command(CommandLine& program);

/// What is wrong with the name of a job, or nothing where parse_job_name takes it.
std::string job_name_complaint(const std::string& name);

}  // namespace bellows
