// SPDX-License-Identifier: Apache-2.0
#include "spank/container/devices.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "spank/container/mount_api.h"

namespace bellows::container {
namespace {

constexpr const char* kAlways[] = {"null", "zero", "full", "random", "urandom", "tty"};

constexpr std::pair<const char*, const char*> kLinks[] = {
    {"ptmx", "pts/ptmx"},          {"fd", "/proc/self/fd"},       {"stdin", "/proc/self/fd/0"},
    {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
};

bool is_device(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode));
}

Result<Device> clone_device(const std::string& name, int node, const std::string& path) {
  if (!is_device(node)) return Error{ErrorKind::invalid, path + " is not a device node"};
  MountFlags flags;
  flags.no_exec = true;
  flags.devices = true;
  auto mount = clone_mount(node, path, false, flags);
  if (!mount) return mount.error();
  return Device{name, std::move(*mount)};
}

struct Glob {
  explicit Glob(const std::string& pattern) : status(::glob(pattern.c_str(), 0, nullptr, &found)) {}
  Glob(const Glob&) = delete;
  Glob& operator=(const Glob&) = delete;
  ~Glob() { ::globfree(&found); }

  glob_t found{};
  int status;
};

Status add_matching(const std::string& pattern, std::vector<Device>& devices) {
  constexpr std::string_view dev = "/dev/";
  if (!pattern.starts_with(dev))
    return Error{ErrorKind::invalid,
                 fmt::format("the device pattern {} is not below /dev", pattern)};
  const Glob glob(pattern);
  for (std::size_t i = 0; glob.status == 0 && i < glob.found.gl_pathc; i++) {
    auto device = open_device(std::string(glob.found.gl_pathv[i]).substr(dev.size()));
    if (device) devices.push_back(std::move(*device));
  }
  return {};
}

Status make_link(int dev_dir, const char* name, const char* to) {
  if (::symlinkat(to, dev_dir, name) != 0)
    return errno_error("create", fmt::format("/dev/{}", name));
  return {};
}

Status mount_directory(int dev_dir, const char* name, int mount) {
  auto target = open_target(dev_dir, name, true, true);
  if (!target) return target.error();
  return attach(mount, target->get(), fmt::format("/dev/{}", name));
}

/// Terminals made in the container are its own; the host's are not to be seen.
Status mount_terminals(int dev_dir) {
  MountFlags flags;
  flags.no_exec = true;
  flags.devices = true;
  auto pts =
      new_filesystem("devpts", {{"ptmxmode", "0666"}, {"mode", "0620"}, {"gid", "5"}}, flags);
  if (!pts) return pts.error();
  return mount_directory(dev_dir, "pts", pts->get());
}

}  // namespace

Result<Device> open_device(const std::string& name) {
  const std::string path = "/dev/" + name;
  const Fd dev(::open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!dev) return errno_error("open", "/dev");
  auto node = open_beneath(dev.get(), name, O_PATH | O_NOFOLLOW);
  if (!node) return Error{node.error().kind, node.error().text + " (of /dev)"};
  return clone_device(name, node->get(), path);
}

Result<std::vector<Device>> open_devices(const Site& site, const std::string& console) {
  std::vector<Device> devices;
  for (const char* name : kAlways) {
    auto device = open_device(name);
    if (!device) return device.error();
    devices.push_back(std::move(*device));
  }
  for (const auto& pattern : site.devices)
    if (auto status = add_matching(pattern, devices); !status) return status.error();
  if (!console.empty()) {
    auto node = open_source(console);
    if (!node) return node.error();
    auto device = clone_device("console", node->get(), console);
    if (!device) return device.error();
    devices.push_back(std::move(*device));
  }
  return devices;
}

Status add_device(int dev_dir, const std::string& name, int node_mount) {
  auto target = open_target(dev_dir, name, false, true);
  if (!target) return target.error();
  return attach(node_mount, target->get(), "/dev/" + name);
}

Result<Fd> new_dev() {
  // Owned by its maker, who has no other right to fill it; read-only by the time a program runs.
  const std::vector<std::pair<std::string, std::string>> options = {
      {"mode", "0755"},
      {"size", "64k"},
      {"nr_inodes", "4k"},
      {"uid", std::to_string(::getuid())},
      {"gid", std::to_string(::getgid())}};
  MountFlags flags;
  flags.no_exec = true;
  return new_filesystem("tmpfs", options, flags);
}

Status fill_dev(int dev_dir, const std::vector<Device>& devices, int shm) {
  for (const auto& device : devices)
    if (auto status = add_device(dev_dir, device.name, device.mount.get()); !status) return status;
  for (const auto& [name, to] : kLinks)
    if (auto status = make_link(dev_dir, name, to); !status) return status;
  if (auto status = mount_terminals(dev_dir); !status) return status;
  return mount_directory(dev_dir, "shm", shm);
}

}  // namespace bellows::container
