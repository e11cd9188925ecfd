// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/other_program.h"
#include "launcher/cli/commands.h"

namespace bellows {

void add_image_command(CommandLine& program) {
  CommandLine command =
      program.add_command("image", "Fetch images out of registries, show and remove them");
  command.run_with_all(
      [](const std::vector<std::string>& arguments) { return become_program("image", arguments); });
}

}  // namespace bellows
