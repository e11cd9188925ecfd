// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>

#include "config.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/other_program.h"
#include "pool/command/commands.h"
#include "pool/keeper/keeper_command.h"
#include "pool/member/member_command.h"

namespace {

void add_commands(bellows::CommandLine& program) {
  bellows::pool::add_create_command(program);
  bellows::pool::add_start_command(program);
  bellows::pool::add_show_commands(program);
  bellows::pool::add_change_commands(program);
  bellows::pool::add_delete_command(program);
  bellows::pool::add_simulate_command(program);
  bellows::pool::add_member_command(program);
  bellows::pool::add_keeper_command(program);
}

}  // namespace

int bellows::pool::fail(const Error& error) { return fail_as("pool", error); }

int main(int argc, char** argv) {
  try {
    return bellows::run_command_line(
        {.name = "bellows pool",
         .description = "Elastic pools: services of jobs that grow and shrink with their load",
         .version = "bellows pool " PACKAGE_VERSION,
         .footer = "Exit status: 0 done, 1 failed, 2 wrong command line, 3 refused, 4 no answer, "
                   "5 timed out."},
        add_commands, argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bellows pool: %s\n", error.what());
  }
  return bellows::kFailed;
}
