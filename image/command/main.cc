// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>

#include "config.h"
#include "image/command/commands.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/other_program.h"

namespace {

void add_commands(bellows::CommandLine& program) {
  bellows::image::add_import_command(program);
  bellows::image::add_keep_commands(program);
}

}  // namespace

int bellows::image::fail(const Error& error) { return fail_as("image", error); }

int main(int argc, char** argv) {
  try {
    return bellows::run_command_line(
        {.name = "bellows image",
         .description = "Images out of registries, for containers",
         .version = "bellows image " PACKAGE_VERSION,
         .footer = "Exit status: 0 done, 1 failed, 2 wrong command line, 3 refused, 4 no answer."},
        add_commands, argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bellows image: %s\n", error.what());
  }
  return bellows::kFailed;
}
