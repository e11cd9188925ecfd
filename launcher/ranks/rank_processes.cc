// SPDX-License-Identifier: Apache-2.0
#include "launcher/ranks/rank_processes.h"

#include <dirent.h>
#include <fmt/core.h>
#include <signal.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "common/directory.h"
#include "common/text.h"
#include "common/variables.h"

namespace bellows {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool has_variable(std::string_view environment, std::string_view variable) {
  for (const std::string_view found : split(environment, '\0'))
    if (found == variable) return true;
  return false;
}

}  // namespace

void kill_ranks_here(const std::string& attempt) {
  const std::string variable = fmt::format("{}={}", kAttemptVariable, attempt);
  // A job that a rank has submitted has inherited the name.
  const std::string job = "SLURM_JOB_ID=" + attempt.substr(0, attempt.find('.'));
  const Directory processes(opendir("/proc"));
  if (!processes) return;
  while (const dirent* entry = readdir(processes.get())) {
    const auto pid = parse_uint(entry->d_name);
    const std::string place = std::string("/proc/") + entry->d_name;
    const std::string environment = pid ? text_of(place + "/environ") : std::string();
    if (!has_variable(environment, variable) || !has_variable(environment, job)) continue;
    if (text_of(place + "/comm") != "srun\n") kill(static_cast<pid_t>(*pid), SIGKILL);
  }
}

}  // namespace bellows
