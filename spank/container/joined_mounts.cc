// SPDX-License-Identifier: Apache-2.0
#include "spank/container/joined_mounts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/directory.h"
#include "common/fd.h"
#include "common/text.h"
#include "spank/container/mount_api.h"
#include "spank/container/mount_namespace.h"

namespace bellows::container {
namespace {

/// The user decides how many there are.
constexpr std::size_t kMostMounts = 256;

struct Taken {
  std::string path;
  Fd mount;
};

/// Which namespace of a process this is; 0: one may not know.
ino_t namespace_of(std::uint64_t pid, const char* kind) {
  struct stat info {};
  const std::string path = fmt::format("/proc/{}/ns/{}", pid, kind);
  return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

std::vector<std::uint64_t> processes() {
  std::vector<std::uint64_t> pids;
  const Directory proc = read_directory(Fd(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  while (const dirent* entry = proc ? ::readdir(proc.get()) : nullptr)
    if (const auto pid = parse_uint(entry->d_name)) pids.push_back(*pid);
  std::sort(pids.begin(), pids.end());
  return pids;
}

/// The mount namespace of the first other root in this user namespace, which is the container's
/// alone; invalid: there is none.
Fd others_namespace() {
  const auto self = static_cast<std::uint64_t>(::getpid());
  const ino_t user = namespace_of(self, "user");
  const ino_t mounts = namespace_of(self, "mnt");
  for (const std::uint64_t pid : processes()) {
    if (user == 0 || namespace_of(pid, "user") != user) continue;
    const ino_t others = namespace_of(pid, "mnt");
    if (others == 0 || others == mounts) continue;
    auto found = open_file(fmt::format("/proc/{}/ns/mnt", pid), O_RDONLY);
    if (found) return *std::move(found);
  }
  return {};
}

bool has(const std::vector<std::string>& points, const std::string& point) {
  return std::find(points.begin(), points.end(), point) != points.end();
}

bool is_below(const std::string& point, const std::vector<Taken>& taken) {
  return std::any_of(taken.begin(), taken.end(),
                     [&point](const Taken& above) { return point.starts_with(above.path + "/"); });
}

/// In the other's namespace: what is mounted there and not at one of `points`, with what is mounted
/// below it.
Status clone_others(const std::vector<std::string>& points, std::vector<Taken>& taken) {
  const auto there = mount_points();
  if (!there) return there.error();
  for (const std::string& point : *there) {
    if (taken.size() == kMostMounts) break;
    if (has(points, point) || is_below(point, taken)) continue;
    const auto from = open_file(point, O_PATH | O_NOFOLLOW);
    auto clone = from ? clone_mount(from->get(), point, true, {}) : Result<Fd>(from.error());
    if (clone) taken.push_back({point, *std::move(clone)});
  }
  return {};
}

}  // namespace

Status take_joined_mounts() {
  const Fd others = others_namespace();
  if (!others) return {};
  const auto here = mount_points();
  if (!here) return here.error();
  const auto directory = open_file(".", O_PATH | O_DIRECTORY);
  if (!directory) return directory.error();
  std::vector<Taken> taken;
  if (auto status = do_in(others.get(), [&] { return clone_others(*here, taken); }); !status.ok())
    return status;
  for (const Taken& one : taken)
    if (const auto target = open_file(one.path, O_PATH | O_NOFOLLOW))
      (void)attach(one.mount.get(), target->get(), one.path);
  return ::fchdir(directory->get()) == 0 ? Status() : errno_error("go back to", "the directory");
}

}  // namespace bellows::container
