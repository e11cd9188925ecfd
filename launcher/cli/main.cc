// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>

#include "config.h"
#include "launcher/base/exit_status.h"
#include "launcher/cli/commands.h"

namespace {

void add_commands(bellows::CommandLine& program) {
  bellows::add_run_command(program);
  bellows::add_resize_command(program);
  bellows::add_halt_command(program);
  bellows::add_resume_command(program);
  bellows::add_status_command(program);
  bellows::add_history_command(program);
  bellows::add_logs_command(program);
  bellows::add_check_config_command(program);
  bellows::add_explain_command(program);
  bellows::add_ckpt_command(program);
  bellows::add_tenants_command(program);
  bellows::add_plan_command(program);
  bellows::add_simulate_command(program);
  bellows::add_model_command(program);
  bellows::add_pool_command(program);
  bellows::add_image_command(program);
  bellows::add_container_command(program);
  bellows::add_setup_command(program);
  bellows::add_completion_command(program);
  bellows::add_agent_command(program);
  bellows::add_control_command(program);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return bellows::run_command_line(
        {.name = "bellows",
         .description = "Bellows: elastic deep-learning jobs on Slurm",
         .version = "bellows " PACKAGE_VERSION,
         .footer = "Exit status: 0 done, 1 failed, 2 wrong command line, 3 refused, 4 no answer, "
                   "5 timed out."},
        add_commands, argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bellows: %s\n", error.what());
  }
  return bellows::kFailed;
}
