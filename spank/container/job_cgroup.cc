// SPDX-License-Identifier: Apache-2.0
#include "spank/container/job_cgroup.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

#include "common/text.h"

namespace bellows::container {
namespace {

constexpr std::size_t kMostMountinfo = 16U << 20;
constexpr std::size_t kMostLines = 65536;
constexpr std::size_t kMostProcesses = 1U << 20;
constexpr std::string_view kOwn = "/bellows";

bool is_v2(std::string_view line) { return line.starts_with("0::"); }

std::vector<std::string> paths_of(const std::vector<std::string>& cgroups) {
  const auto mountinfo = read_file("/proc/self/mountinfo", kMostMountinfo);
  std::vector<std::string> paths;
  for (const std::string& line : cgroups) {
    std::string path = mountinfo ? cgroup_path(line, *mountinfo) : "";
    if (!path.empty() && is_v2(line)) path += kOwn;
    paths.push_back(std::move(path));
  }
  return paths;
}

/// Whether a mount with these options of its file system has the hierarchy of these controllers.
bool has_controllers(std::string_view options, std::string_view controllers) {
  const auto all = split(options, ',');
  const auto wanted = split(controllers, ',');
  return std::all_of(wanted.begin(), wanted.end(), [&all](std::string_view name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  });
}

}  // namespace

std::string cgroup_path(std::string_view line, std::string_view mountinfo) {
  const auto parts = split(line, ':');
  if (parts.size() != 3 || !parts[2].starts_with('/')) return "";
  for (const auto mount : split(mountinfo, '\n')) {
    // ID, parent, device, root, mount point, options, [tags], "-", type, source, its options
    const auto dash = mount.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto fields = split(mount.substr(0, dash), ' ');
    const auto kind = split(mount.substr(dash + 3), ' ');
    if (fields.size() < 5 || fields[3] != "/" || kind.size() < 3) continue;
    const bool found = is_v2(line) ? kind[0] == "cgroup2"
                                   : kind[0] == "cgroup" && has_controllers(kind[2], parts[1]);
    if (found) return std::string(fields[4]) + std::string(parts[2]);
  }
  return "";
}

JobCgroup JobCgroup::open(const std::vector<std::string>& cgroups) {
  JobCgroup job;
  const auto paths = paths_of(cgroups);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (is_v2(cgroups[i]) && ::mkdir(paths[i].c_str(), 0755) != 0 && errno != EEXIST) return {};
    auto file = open_file(paths[i] + "/cgroup.procs", O_WRONLY);
    if (!file) return {};
    job.files_.push_back(*std::move(file));
  }
  return job;
}

Result<JobCgroup> JobCgroup::of(pid_t process) {
  const auto lines = read_file(fmt::format("/proc/{}/cgroup", process), kMostLines);
  if (!lines) return lines.error();
  const auto own = read_file("/proc/self/cgroup", kMostLines);
  if (!own) return own.error();
  const auto mountinfo = read_file("/proc/self/mountinfo", kMostMountinfo);
  if (!mountinfo) return mountinfo.error();
  const auto here = split(*own, '\n');
  JobCgroup job;
  for (const auto line : split(*lines, '\n')) {
    if (std::find(here.begin(), here.end(), line) != here.end()) continue;
    const std::string path = cgroup_path(line, *mountinfo);
    if (path.empty())
      return Error{ErrorKind::not_found, fmt::format("the cgroup {} is mounted nowhere", line)};
    auto file = open_file(path + "/cgroup.procs", O_WRONLY);
    if (!file) return file.error();
    job.files_.push_back(*std::move(file));
  }
  return job;
}

bool JobCgroup::admit(pid_t pid) const {
  std::array<char, 16> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), pid).ptr;
  return std::all_of(files_.begin(), files_.end(), [&](const Fd& file) {
    return ::write(file.get(), text.data(), static_cast<std::size_t>(end - text.data())) > 0;
  });
}

std::vector<std::string> entered_cgroups(const std::vector<std::string>& cgroups) {
  const auto paths = paths_of(cgroups);
  std::vector<std::string> entered;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto processes = read_file(paths[i] + "/cgroup.procs", kMostProcesses);
    // A task that starts may be in one of them for a moment, and in its step's of another
    // hierarchy.
    if (!processes || processes->empty()) return {};
    entered.push_back(is_v2(cgroups[i]) ? cgroups[i] + std::string(kOwn) : cgroups[i]);
  }
  return entered;
}

void remove_job_cgroup(const std::vector<std::string>& cgroups) {
  const auto paths = paths_of(cgroups);
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (is_v2(cgroups[i]) && !paths[i].empty()) ::rmdir(paths[i].c_str());
}

}  // namespace bellows::container
