// SPDX-License-Identifier: Apache-2.0
#include "spank/leftovers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "common/directory.h"
#include "common/fd.h"
#include "common/text.h"
#include "spank/container/job_cgroup.h"
#include "spank/container/views.h"

namespace bellows::spank {
namespace {

constexpr std::size_t kMostBytes = 65536;

/// No container's name is so.
constexpr const char* kNote = "job:cgroups";

/// Which processes are meant.
struct Where {
  const std::vector<std::string>& cgroups;
  bool below;  ///< those in or below any of the cgroups; else, those in all of them
};

bool is_below(std::string_view line, std::string_view cgroup) {
  return line.starts_with(cgroup) && (line.size() == cgroup.size() || line[cgroup.size()] == '/');
}

/// The first word after the key in a process's status: a name can't hold a line's end there.
std::string_view status_word(std::string_view status, std::string_view key) {
  const auto at = status.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = status.substr(at + key.size());
  return rest.substr(0, rest.find_first_of("\t \n"));
}

/// Root's are slurmstepds, this one too. All others in the job's cgroups are the job's, also those
/// that a user namespace gave another user.
bool is_users(std::uint64_t pid) {
  const auto status = read_file(fmt::format("/proc/{}/status", pid), kMostBytes);
  if (!status) return false;
  const auto uid = status_word(*status, "\nUid:\t");
  return !uid.empty() && uid != "0";
}

/// With all its threads: the state in /proc is that of the first alone. What has ended, and only
/// waits for its parent to notice, holds nothing open.
bool has_ended(const Fd& process) {
  pollfd end{process.get(), POLLIN, 0};
  return ::poll(&end, 1, 0) == 1;
}

bool is_in(std::uint64_t pid, const Where& where) {
  const auto text = read_file(fmt::format("/proc/{}/cgroup", pid), kMostBytes);
  if (!text) return false;
  const auto lines = split(*text, '\n');
  const auto below_one = [&where](std::string_view line) {
    return std::any_of(where.cgroups.begin(), where.cgroups.end(),
                       [line](const std::string& cgroup) { return is_below(line, cgroup); });
  };
  const auto is_line = [&lines](const std::string& cgroup) {
    return std::find(lines.begin(), lines.end(), cgroup) != lines.end();
  };
  return where.below ? std::any_of(lines.begin(), lines.end(), below_one)
                     : std::all_of(where.cgroups.begin(), where.cgroups.end(), is_line);
}

/// By a pidfd, opened before the process was looked at: what is looked at is what is ended, or
/// nothing is. True: there was one.
bool end_one(std::uint64_t pid, const Where& where) {
  if (!is_users(pid) || !is_in(pid, where)) return false;
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U)));
  // It has gone meanwhile, and may have forked before.
  if (!process || !is_users(pid) || !is_in(pid, where)) return true;
  if (has_ended(process)) return false;
  ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0U);
  return true;
}

Result<bool> end_all(const Where& where) {
  const Directory proc = read_directory(Fd(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (!proc) return errno_error("read", "/proc");
  bool any = false;
  while (const dirent* entry = ::readdir(proc.get()))
    if (const auto pid = parse_uint(entry->d_name)) any = end_one(*pid, where) || any;
  return any;
}

/// From Slurm 26.05 on a job's cgroup v2 has the name of its run instead of its number: "s" and 13
/// digits in Crockford's base 32. Nothing: the line has no step of a run.
std::string_view cgroup_of_run(std::string_view line) {
  const auto step = line.rfind("/step_");
  if (!line.starts_with("0::") || step == std::string_view::npos) return {};
  const std::string_view cgroup = line.substr(0, step);
  const std::string_view name = cgroup.substr(cgroup.rfind('/') + 1);
  constexpr std::string_view kDigits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  const bool is_run = name.size() == 14 && name.front() == 's' &&
                      name.find_first_not_of(kDigits, 1) == std::string_view::npos;
  return is_run ? cgroup : std::string_view();
}

Status end_within(const Where& where, std::chrono::milliseconds limit) {
  if (where.cgroups.empty()) return {};
  const auto deadline = std::chrono::steady_clock::now() + limit;
  // A process that forks during the search is found in the next one, so no process may be found
  // twice.
  int clean = 0;
  for (std::chrono::milliseconds pause(1);; pause = std::min(2 * pause, limit)) {
    const auto any = end_all(where);
    if (!any) return any.error();
    clean = *any ? 0 : clean + 1;
    if (clean == 2) return {};
    if (std::chrono::steady_clock::now() >= deadline)
      return Error{ErrorKind::unavailable,
                   fmt::format("processes in {} do not end", where.cgroups.front())};
    std::this_thread::sleep_for(std::min(pause, std::chrono::milliseconds(50)));
  }
}

}  // namespace

std::vector<std::string> job_cgroups(std::uint32_t job, std::string_view lines) {
  const std::string name = fmt::format("/job_{}", job);
  std::vector<std::string> cgroups;
  for (const std::string_view line : split(lines, '\n')) {
    // The last one: slurmd itself may run in a job of the same number of another cluster.
    const auto at = line.rfind(name + "/");
    if (line.ends_with(name))
      cgroups.emplace_back(line);
    else if (at != std::string_view::npos)
      cgroups.emplace_back(line.substr(0, at + name.size()));
    else if (const auto run = cgroup_of_run(line); !run.empty())
      cgroups.emplace_back(run);
  }
  return cgroups;
}

Status end_leftovers(const std::vector<std::string>& cgroups, std::chrono::milliseconds limit) {
  return end_within({cgroups, true}, limit);
}

Status end_beside_steps(const std::vector<std::string>& cgroups, std::chrono::milliseconds limit) {
  return end_within({cgroups, false}, limit);
}

Status note_cgroups(const std::string& run_dir, std::uint32_t job,
                    const std::vector<std::string>& cgroups) {
  const auto views = container::JobViews::open(run_dir, job);
  if (!views) return views.error();
  return views->keep_note(kNote, fmt::format("{}", fmt::join(cgroups, "\n")));
}

Status end_noted(const std::string& run_dir, std::uint32_t job, std::chrono::milliseconds limit) {
  const auto views = container::JobViews::open(run_dir, job);
  if (!views) return views.error();
  const auto text = views->read_note(kNote);
  if (!text) return text.error();
  std::vector<std::string> cgroups;
  for (const std::string_view line : split(*text, '\n'))
    if (!line.empty()) cgroups.emplace_back(line);
  const Status status = end_beside_steps(container::entered_cgroups(cgroups), limit);
  container::remove_job_cgroup(cgroups);
  return status;
}

}  // namespace bellows::spank
