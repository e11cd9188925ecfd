// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "launcher/base/exit_status.h"
#include "launcher/base/job_paths.h"
#include "launcher/cli/commands.h"

namespace bellows {
namespace {

/// A program of its own has gRPC, so that no other command loads it.
int become_pool_program(const std::vector<std::string>& arguments) {
  const std::string beside = std::filesystem::path(own_program()).parent_path() / "bellows-pool";
  const std::string program = access(beside.c_str(), X_OK) == 0 ? beside : "bellows-pool";
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execvp(program.c_str(), words.data());
  fmt::print(stderr, "bellows pool: can't run {}: {}; is Bellows installed as a whole?\n", program,
             std::strerror(errno));
  return kFailed;
}

}  // namespace

void add_pool_command(CommandLine& program) {
  CommandLine command = program.add_command(
      "pool", "Make and show elastic pools: services that grow and shrink with their load");
  command.run_with_all(become_pool_program);
}

}  // namespace bellows
