// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

#include "launcher/base/exit_status.h"
#include "launcher/base/job_paths.h"
#include "launcher/cli/commands.h"
#include "launcher/run/control_server.h"

namespace bellows {
namespace {

// Copies what is available. False at the end of `from`, or when `to` is gone.
bool copy_some(int from, int to) {
  char chunk[4096];
  ssize_t got = read(from, chunk, sizeof chunk);
  if (got <= 0) return false;
  return write_all(to, std::string_view(chunk, static_cast<std::size_t>(got)), "the peer").ok();
}

int relay() {
  auto id = job_id_from_environment();
  if (!id) {
    fmt::print(stderr, "bellows control: not running inside a Slurm step\n");
    return kRefused;
  }
  auto launcher = connect_control(run_dir_of(*id) + "/run.sock");
  if (!launcher) {
    fmt::print(stderr, "bellows control: {}\n", launcher.error().text);
    return kUnreachable;
  }
  pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {launcher->get(), POLLIN, 0}};
  while (true) {
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[0].revents != 0 && !copy_some(STDIN_FILENO, launcher->get())) {
      shutdown(launcher->get(), SHUT_WR);
      fds[0].fd = -1;
    }
    if (fds[1].revents != 0 && !copy_some(launcher->get(), STDOUT_FILENO)) return kOk;
  }
}

}  // namespace

void add_control_command(CommandLine& program) {
  CommandLine command = program.add_command(
      "control", "Pass JSON lines to the job's launcher (used by 'bellows resize')");
  command.run(relay);
}

}  // namespace bellows
