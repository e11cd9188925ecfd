// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/other_program.h"
#include "launcher/cli/commands.h"

namespace bellows {

void add_pool_command(CommandLine& program) {
  CommandLine command = program.add_command(
      "pool", "Make and show elastic pools: services that grow and shrink with their load");
  command.run_with_all(
      [](const std::vector<std::string>& arguments) { return become_program("pool", arguments); });
}

}  // namespace bellows
