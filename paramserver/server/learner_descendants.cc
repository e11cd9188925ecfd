// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/learner_descendants.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string_view>

#include "common/fd.h"
#include "common/text.h"
#include "paramserver/server/learner_processes.h"

namespace bellows::ps {
namespace {

constexpr std::size_t kMostEnvironment = 8 << 20;
constexpr int kLooks = 50;
constexpr useconds_t kPauseUs = 20'000;

bool is_of(const std::string& environment, const std::string& socket) {
  const auto variables = split(environment, '\0');
  const auto has = [&](const auto& wanted) {
    return std::any_of(variables.begin(), variables.end(), wanted);
  };
  const std::string ours = std::string(kSocketVariable) + "=" + socket;
  // Others may know the socket, too.
  return has([&](std::string_view variable) { return variable == ours; }) &&
         has([](std::string_view variable) {
           return variable.substr(0, variable.find('=')) == kLearnerVariable;
         });
}

/// How many there were.
int kill_all(const std::string& socket) {
  int found = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> all(opendir("/proc"), closedir);
  while (const dirent* const entry = all ? readdir(all.get()) : nullptr) {
    const auto pid = parse_uint(entry->d_name);
    if (!pid || static_cast<pid_t>(*pid) == getpid()) continue;
    const std::string path = std::string("/proc/") + entry->d_name + "/environ";
    const auto environment = read_file(path, kMostEnvironment);
    if (!environment || !is_of(*environment, socket)) continue;
    ++found;
    kill(static_cast<pid_t>(*pid), SIGKILL);
  }
  return found;
}

}  // namespace

// One of them may start another meanwhile. Of those that are dead, the environment is empty.
void kill_learners_of(const std::string& socket) {
  for (int i = 0; i < kLooks && kill_all(socket) > 0; ++i) usleep(kPauseUs);
}

}  // namespace bellows::ps
