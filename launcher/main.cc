// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>

#include "config.h"
#include "launcher/commands.h"
#include "launcher/exit_status.h"

namespace {

int run_main(int argc, char** argv) {
  CLI::App app("Bellows: elastic deep-learning jobs on Slurm", "bellows");
  app.set_version_flag("--version", "bellows " PACKAGE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 done, 1 failed, 2 wrong command line, 3 refused, 4 no answer, 5 timed out.");
  int status = bellows::kOk;
  bellows::add_run_command(app, status);
  bellows::add_resize_command(app, status);
  bellows::add_status_command(app, status);
  bellows::add_check_config_command(app, status);
  bellows::add_explain_command(app, status);
  bellows::add_ckpt_command(app, status);
  bellows::add_tenants_command(app, status);
  bellows::add_agent_command(app, status);
  bellows::add_control_command(app, status);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return std::string("bellows: ") + error.what() + "\nTry 'bellows --help'.\n";
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? bellows::kOk : bellows::kUsage;
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bellows: %s\n", error.what());
  }
  return bellows::kFailed;
}
