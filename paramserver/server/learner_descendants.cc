// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/learner_descendants.h"

#include <dirent.h>
#include <fmt/core.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "common/fd.h"
#include "common/text.h"
#include "paramserver/memory/layout.h"

namespace bellows::ps {
namespace {

constexpr std::size_t kMostEnvironment = 8 << 20;
constexpr useconds_t kPauseUs = 20'000;
constexpr const char* kJob = "SLURM_JOB_ID";

/// None: it may not be read, or the process has ended.
std::string environment_of(std::uint64_t process) {
  auto text = read_file(fmt::format("/proc/{}/environ", process), kMostEnvironment);
  return text ? std::move(*text) : std::string();
}

std::optional<std::string_view> variable(const std::vector<std::string_view>& environment,
                                         std::string_view name) {
  for (const std::string_view entry : environment)
    if (entry.substr(0, entry.find('=')) == name && entry.size() > name.size())
      return entry.substr(name.size() + 1);
  return std::nullopt;
}

std::optional<std::uint64_t> learner_in(const std::vector<std::string_view>& environment) {
  return parse_uint(variable(environment, kLearnerVariable).value_or(""));
}

}  // namespace

Result<LearnerRun> LearnerRun::make() {
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random)
    return errno_error("get", "random numbers");
  const char* const job = std::getenv(kJob);
  return LearnerRun(fmt::format("{:016x}", random), job ? job : "");
}

// A job that a learner submits gets the learner's environment, and a number of its own.
bool LearnerRun::has(const Variables& environment) const {
  return variable(environment, kVariable) == token_ &&
         variable(environment, kJob).value_or(job_) == job_;
}

std::optional<std::uint32_t> LearnerRun::learner_of(pid_t process) const {
  const std::string environment = environment_of(static_cast<std::uint64_t>(process));
  const auto variables = split(environment, '\0');
  if (!has(variables)) return std::nullopt;
  const auto number = learner_in(variables);
  if (!number || *number >= kMostLearners) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

/// How many there were.
int LearnerRun::kill_once(const Wanted& wanted, Clock::time_point until) const {
  int found = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> all(opendir("/proc"), closedir);
  while (const dirent* const entry = all ? readdir(all.get()) : nullptr) {
    const auto pid = parse_uint(entry->d_name);
    if (!pid) continue;
    if (Clock::now() >= until) break;
    // Before the look, so that the signal can reach no other process of this number.
    const Fd process(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(*pid), 0)));
    if (!process) continue;
    const std::string environment = environment_of(*pid);
    const auto variables = split(environment, '\0');
    if (!has(variables) || !wanted(variables)) continue;
    ++found;
    syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  }
  return found;
}

// One of them may start another meanwhile. Of those that are dead, the environment is empty.
void LearnerRun::kill_until_none_is_left(const Wanted& wanted, Limit within) const {
  const auto until = Clock::now() + within;
  while (kill_once(wanted, until) > 0 && Clock::now() < until) usleep(kPauseUs);
}

void LearnerRun::kill_all(Limit within) const {
  kill_until_none_is_left([](const Variables&) { return true; }, within);
}

void LearnerRun::kill_all_of(const std::vector<std::uint32_t>& learners, Limit within) const {
  const auto is_of = [&](const Variables& environment) {
    const auto number = learner_in(environment);
    return number && std::find(learners.begin(), learners.end(), *number) != learners.end();
  };
  kill_until_none_is_left(is_of, within);
}

}  // namespace bellows::ps
