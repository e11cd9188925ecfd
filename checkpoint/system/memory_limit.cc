// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/system/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "common/text.h"

namespace bellows {
namespace {

/// The files of one version of memory cgroups.
struct Names {
  const char* mount;
  const char* limit;
  const char* used;
  const char* cache;  ///< the key in memory.stat
};

constexpr Names kV1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                       "total_inactive_file"};
constexpr Names kV2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

// "max" is not a number, and means no limit.
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  if (!(in >> word)) return {};
  return parse_uint(word);
}

// The number after `key` in a file of lines "key number".
std::optional<std::uint64_t> number_of(const std::string& path, std::string_view key) {
  std::ifstream in(path);
  std::string word, value;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    if (words >> word >> value && word == key) return parse_uint(value);
  }
  return {};
}

std::optional<std::uint64_t> left_in(const std::string& dir, const Names& names) {
  const auto limit = number_in(dir + "/" + names.limit);
  const auto used = number_in(dir + "/" + names.used);
  if (!limit || !used) return {};
  const std::uint64_t cache = number_of(dir + "/memory.stat", names.cache).value_or(0);
  const std::uint64_t held = *used - std::min(*used, cache);
  return *limit - std::min(*limit, held);
}

// The least that a cgroup or one above it leaves.
std::uint64_t least_left(const std::string& mount, std::string path, const Names& names) {
  std::uint64_t least = UINT64_MAX;
  while (true) {
    if (const auto left = left_in(mount + path, names)) least = std::min(least, *left);
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

// A line of /proc/self/cgroup: "4:memory:/slurm/job_7" or "0::/system.slice/job_7".
std::uint64_t left_for_line(const std::string& root, const std::string& line) {
  const auto first = line.find(':');
  const auto second = line.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) return UINT64_MAX;
  const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
  const std::string path = line.substr(second + 1);
  if (controllers == ",,") return least_left(root + kV2.mount, path, kV2);
  if (controllers.find(",memory,") == std::string::npos) return UINT64_MAX;
  return least_left(root + kV1.mount, path, kV1);
}

}  // namespace

std::uint64_t available_memory(const std::string& root) {
  // In kB, by the documentation.
  const auto machine = number_of(root + "/proc/meminfo", "MemAvailable:");
  std::uint64_t least = machine ? *machine * 1024 : UINT64_MAX;
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    least = std::min(least, left_for_line(root, line));
  }
  return least;
}

}  // namespace bellows
