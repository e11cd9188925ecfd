// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "checkpoint/agent/agent.h"
#include "launcher/cli/commands.h"

namespace bellows {

void add_agent_command(CommandLine& program) {
  auto options = std::make_shared<AgentOptions>();
  auto standalone = std::make_shared<bool>(false);
  CommandLine command = program.add_command(
      "agent", "Serve the ranks of one node (started by 'bellows run' and libbellows)");
  auto in_job = std::make_shared<bool>(false);
  command.add_flag("--job", *in_job, "Take commands on standard input, for 'bellows run'");
  command.add_flag("--standalone", *standalone, "Work alone, for a program outside a job")
      .excludes("--job");
  command.add_option("--socket", options->socket_path, "Unix socket to serve ranks on");
  command.add_option("--dir", options->dir, "Standalone: the checkpoint directory");
  command.add_option("--world", options->world, "Standalone: number of ranks").between(1, 65536);
  command.add_option("--keep", options->keep, "Standalone: committed checkpoints to keep")
      .between(1, 1000);
  command.add_option("--keep-every", options->keep_every,
                     "Standalone: also keep every step divisible by this");
  command.run([options, standalone, in_job] {
    if (*standalone) options->mode = AgentOptions::Mode::standalone;
    return agent_main(*options);
  });
}

}  // namespace bellows
