// SPDX-License-Identifier: Apache-2.0
#include "spank/container/joined_mounts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
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
constexpr int kRoot = O_PATH | O_DIRECTORY;
constexpr int kPlace = O_PATH | O_NOFOLLOW;

/// The first process of another root in the container.
struct Other {
  Fd mounts;                       ///< its namespace
  std::vector<MountPoint> points;  ///< in it
};

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

/// Each container is made with a /dev of its own, which its root cannot unmount. A container that
/// was made again, with other mounts, has the user namespace of the one before.
bool is_of_this_container(const std::vector<MountPoint>& points) {
  struct stat dev {};
  if (::stat("/dev", &dev) != 0) return false;
  const std::string device = fmt::format("{}:{}", major(dev.st_dev), minor(dev.st_dev));
  return std::any_of(points.begin(), points.end(), [&device](const MountPoint& point) {
    return point.path == "/dev" && point.device == device;
  });
}

std::optional<Other> find_other() {
  const auto self = static_cast<std::uint64_t>(::getpid());
  const ino_t user = namespace_of(self, "user");
  const ino_t mounts = namespace_of(self, "mnt");
  for (const std::uint64_t pid : processes()) {
    if (user == 0 || namespace_of(pid, "user") != user) continue;
    const ino_t others = namespace_of(pid, "mnt");
    if (others == 0 || others == mounts) continue;
    // Not in its namespace, where it decides what /proc is.
    auto points = mount_points(std::to_string(pid));
    auto found = open_file(fmt::format("/proc/{}/ns/mnt", pid), O_RDONLY);
    if (points && found && is_of_this_container(*points))
      return Other{*std::move(found), *std::move(points)};
  }
  return std::nullopt;
}

/// What the set-up mounts for one task alone: its GPUs, and the directories of its PMIx server.
bool is_of_setup(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return path.starts_with("/dev/") || path.starts_with("/proc/") || path.starts_with("/sys/") ||
         name.starts_with("pmix.") || name.starts_with("spmix_");
}

/// Which of the other's mounts the caller lacks; with one goes what is mounted below it.
std::vector<std::string> lacking(const std::vector<MountPoint>& theirs,
                                 const std::vector<MountPoint>& ours) {
  std::vector<std::string> paths;
  for (const MountPoint& point : theirs) {
    const bool known =
        std::any_of(ours.begin(), ours.end(),
                    [&point](const MountPoint& our) { return our.path == point.path; }) ||
        std::any_of(paths.begin(), paths.end(), [&point](const std::string& path) {
          return point.path == path || point.path.starts_with(path + "/");
        });
    if (!known && !is_of_setup(point.path) && paths.size() < kMostMounts)
      paths.push_back(point.path);
  }
  return paths;
}

std::vector<Taken> clone_all(const std::vector<std::string>& paths) {
  std::vector<Taken> taken;
  const auto root = open_file("/", kRoot);
  for (const std::string& path : paths) {
    const auto from = root ? open_in_root(root->get(), path, kPlace) : Result<Fd>(root.error());
    auto clone = from ? clone_mount(from->get(), path, true, {}) : Result<Fd>(from.error());
    if (clone) taken.push_back({path, *std::move(clone)});
  }
  return taken;
}

void attach_all(const std::vector<Taken>& taken) {
  const auto root = open_file("/", kRoot);
  if (!root) return;
  for (const auto& [path, mount] : taken)
    if (const auto place = open_in_root(root->get(), path, kPlace))
      (void)attach(mount.get(), place->get(), path);
}

}  // namespace

Status take_joined_mounts() {
  const auto other = find_other();
  if (!other) return {};
  const auto ours = mount_points("self");
  if (!ours) return ours.error();
  const auto paths = lacking(other->points, *ours);
  if (paths.empty()) return {};
  const auto directory = open_file(".", kRoot);
  if (!directory) return directory.error();
  std::vector<Taken> taken;
  const auto work = [&] {
    taken = clone_all(paths);
    return Status();
  };
  if (auto status = do_in(other->mounts.get(), work); !status.ok()) return status;
  attach_all(taken);
  return ::fchdir(directory->get()) == 0 ? Status() : errno_error("go back to", "the directory");
}

}  // namespace bellows::container
