// SPDX-License-Identifier: Apache-2.0
#include "pool/member/usage.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/fd.h"
#include "common/text.h"

namespace bellows::pool {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;
/// A program that starts more is counted in part.
constexpr std::size_t kMostProcesses = 10'000;
/// Places in /proc/PID/stat behind the name: see proc(5), where they are counted from 1.
constexpr std::size_t kUserTime = 14 - 3;
constexpr std::size_t kChildrensKernelTime = 17 - 3;
constexpr std::size_t kResidentPages = 24 - 3;

std::uint64_t number_of(std::string_view text) { return parse_uint(text).value_or(0); }

/// Those of its main thread; few programs start others from another one, and those are missed.
void add_children(pid_t process, std::vector<pid_t>& all) {
  const auto text = read_file(fmt::format("/proc/{0}/task/{0}/children", process), kMostBytes);
  if (!text) return;
  for (const std::string_view word : split(*text, ' '))
    if (const auto child = number_of(trim(word)); child != 0 && all.size() < kMostProcesses)
      all.push_back(static_cast<pid_t>(child));
}

bool add_usage(pid_t process, TreeUsage& usage) {
  const auto text = read_file(fmt::format("/proc/{}/stat", process), kMostBytes);
  if (!text) return false;
  // The name may have spaces and parentheses of its own.
  const std::size_t end = text->rfind(')');
  if (end == std::string::npos || end + 2 > text->size()) return false;
  const auto fields = split(std::string_view(*text).substr(end + 2), ' ');
  if (fields.size() <= kResidentPages) return false;
  std::uint64_t ticks = 0;
  for (std::size_t i = kUserTime; i <= kChildrensKernelTime; ++i) ticks += number_of(fields[i]);
  usage.cpu_seconds += static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
  usage.bytes +=
      number_of(fields[kResidentPages]) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return true;
}

std::uint64_t variable(const char* name) {
  const char* const text = std::getenv(name);
  return text ? number_of(text) : 0;
}

}  // namespace

std::optional<TreeUsage> usage_of(pid_t root) {
  TreeUsage usage;
  if (!add_usage(root, usage)) return std::nullopt;
  std::vector<pid_t> all;
  add_children(root, all);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (const pid_t process = all[i]; add_usage(process, usage)) add_children(process, all);
  return usage;
}

Usage Usage::of_job() {
  std::uint64_t cpus = variable("SLURM_CPUS_ON_NODE");
  cpu_set_t set;
  if (cpus == 0 && sched_getaffinity(0, sizeof set, &set) == 0)
    cpus = static_cast<std::uint64_t>(CPU_COUNT(&set));
  constexpr std::uint64_t kMegabyte = 1 << 20;
  const std::uint64_t of_node = variable("SLURM_MEM_PER_NODE") * kMegabyte;
  const std::uint64_t of_cpus = variable("SLURM_MEM_PER_CPU") * kMegabyte * cpus;
  return {std::max<double>(1, static_cast<double>(cpus)), std::max(of_node, of_cpus)};
}

void Usage::look(pid_t program, Clock::time_point now) {
  const auto usage = usage_of(program);
  const double seconds = std::chrono::duration<double>(now - std::exchange(looked_, now)).count();
  const auto before = std::exchange(before_, usage);
  cpu_ = memory_ = std::nullopt;
  if (!usage) return;
  if (memory_bytes_ > 0)
    memory_ = static_cast<double>(usage->bytes) / static_cast<double>(memory_bytes_);
  // What a process that left its parent has used is gone from the sum.
  if (before && seconds > 0)
    cpu_ = std::max(0.0, usage->cpu_seconds - before->cpu_seconds) / seconds / cpus_;
}

}  // namespace bellows::pool
