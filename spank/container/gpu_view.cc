// SPDX-License-Identifier: Apache-2.0
#include "spank/container/gpu_view.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "common/text.h"
#include "spank/container/mount_api.h"
#include "spank/container/root_files.h"
#include "spank/container/small_tree.h"

namespace bellows::container {
namespace {

constexpr std::string_view kDriver = "driver/nvidia";
/// For people.
constexpr std::string_view kWhole = "/proc/driver/nvidia";
constexpr std::size_t kLongest = 65536;

bool not_there(const Error& error) { return error.kind == ErrorKind::not_found; }

/// The value of a line "KEY: VALUE".
std::optional<std::string_view> value_of(std::string_view text, std::string_view key) {
  for (std::string_view line : split(text, '\n')) {
    const auto colon = line.find(':');
    if (colon != std::string_view::npos && trim(line.substr(0, colon)) == key)
      return trim(line.substr(colon + 1));
  }
  return std::nullopt;
}

std::string without_node_making(std::string_view params) {
  std::string text;
  for (std::string_view line : split(params, '\n'))
    if (!line.empty() && !line.starts_with("ModifyDeviceFiles:")) (text += line) += '\n';
  return text + "ModifyDeviceFiles: 0\n";
}

Status add_clone(SmallTree& tree, int proc, const std::string& name, bool directory) {
  const std::string path = std::string(kDriver) + "/" + name;
  auto original = open_in_root(proc, path, O_PATH | (directory ? O_DIRECTORY : 0));
  if (!original && not_there(original.error())) return {};
  if (!original) return original.error();
  auto clone =
      clone_mount(original->get(), "/proc/" + path, false, {.read_only = true, .no_exec = true});
  if (!clone) return clone.error();
  return tree.add_clone(name, *std::move(clone), directory);
}

/// Takes away what cover_driver_proc() put there.
Status uncover(int proc) {
  auto fd = open_in_root(proc, kDriver, O_PATH | O_DIRECTORY);
  if (!fd && not_there(fd.error())) return {};
  if (!fd) return fd.error();
  struct statx info {};
  struct statfs system {};
  if (::statx(fd->get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS, &info) != 0 ||
      ::fstatfs(fd->get(), &system) != 0)
    return errno_error("look at", kWhole);
  const bool mounted = (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  if (!mounted || system.f_type != TMPFS_MAGIC) return {};
  const auto parent = open_in_root(proc, "driver", O_PATH | O_DIRECTORY);
  return parent ? unmount_in(parent->get(), "nvidia") : Status(parent.error());
}

/// gpus/ has a directory for each GPU, by its place on the bus.
Status add_gpus(SmallTree& tree, int proc, const std::vector<unsigned>& minors) {
  const std::string gpus = std::string(kDriver) + "/gpus";
  auto names = list_in_root(proc, gpus);
  if (!names) return names.error();
  Status status = tree.add_directory("gpus");
  for (const std::string& name : *names) {
    if (!status) return status;
    auto text = read_in_root(proc, gpus + "/" + name + "/information", kLongest);
    if (!text) return text.error();
    if (!*text) continue;
    const auto minor = parse_uint(value_of(**text, "Device Minor").value_or(""));
    if (minor && std::count(minors.begin(), minors.end(), *minor) != 0)
      status = add_clone(tree, proc, "gpus/" + name, true);
  }
  return status;
}

/// capabilities/ (MIG) has gpuMINOR for each GPU and what concerns all of them.
Status add_capabilities(SmallTree& tree, int proc, const std::vector<unsigned>& minors) {
  auto names = list_in_root(proc, std::string(kDriver) + "/capabilities");
  if (!names) return names.error();
  if (names->empty()) return {};
  Status status = tree.add_directory("capabilities");
  for (const std::string& name : *names) {
    if (!status) return status;
    const bool of_gpu = name.starts_with("gpu");
    const auto minor = of_gpu ? parse_uint(std::string_view(name).substr(3)) : std::nullopt;
    if (of_gpu && !(minor && std::count(minors.begin(), minors.end(), *minor) != 0)) continue;
    // "mig" and "gpuN" are directories, "fabric-imex-mgmt" and similar names are files.
    const std::string path = "capabilities/" + name;
    auto original = open_in_root(proc, std::string(kDriver) + "/" + path, O_PATH);
    if (!original) return original.error();
    struct stat info {};
    if (::fstat(original->get(), &info) != 0) return errno_error("stat", path);
    status = add_clone(tree, proc, path, S_ISDIR(info.st_mode));
  }
  return status;
}

}  // namespace

GpuView plan_view(const std::vector<GpuNode>& nodes) {
  GpuView view;
  for (const GpuNode& node : nodes) {
    if (node.kind != GpuNode::Kind::gpu) continue;
    const bool own = node.access == DeviceAccess::allowed;
    (own ? view.shown : view.hidden).push_back(node.name);
    if (own) view.minors.push_back(node.minor);
  }
  if (view.minors.empty()) return view;
  for (const GpuNode& node : nodes) {
    if (node.kind == GpuNode::Kind::control && node.access == DeviceAccess::allowed)
      view.shown.push_back(node.name);
  }
  return view;
}

Status hide_nodes(int dev, const std::vector<std::string>& names, int dead) {
  for (const std::string& name : names) {
    auto target = open_in_root(dev, name, O_PATH | O_NOFOLLOW);
    if (!target && not_there(target.error())) continue;
    if (!target) return target.error();
    const std::string path = "/dev/" + name;
    auto cover = clone_mount(dead, path, false, {.read_only = true, .no_exec = true});
    if (!cover) return cover.error();
    if (auto status = attach(cover->get(), target->get(), path); !status) return status;
  }
  return {};
}

Result<std::vector<Device>> clone_nodes(int dev, const std::vector<std::string>& names) {
  std::vector<Device> clones;
  for (const std::string& name : names) {
    auto node = open_in_root(dev, name, O_PATH | O_NOFOLLOW);
    if (!node) return node.error();
    const std::string path = "/dev/" + name;
    auto mount = clone_mount(node->get(), path, false, {.no_exec = true, .devices = true});
    if (!mount) return mount.error();
    clones.push_back({name, *std::move(mount)});
  }
  return clones;
}

Status cover_driver_proc(int proc, const std::vector<unsigned>& minors) {
  if (auto status = uncover(proc); !status) return status;
  auto target = open_in_root(proc, kDriver, O_PATH | O_DIRECTORY);
  if (!target && not_there(target.error())) return {};
  if (!target) return target.error();
  auto tree = SmallTree::create(std::string(kWhole));
  if (!tree) return tree.error();
  auto params = read_in_root(proc, std::string(kDriver) + "/params", kLongest);
  if (!params) return params.error();
  Status status;
  if (*params) status = tree->add_text("params", without_node_making(**params));
  for (const char* name : {"version", "registry"})
    if (status) status = add_clone(*tree, proc, name, false);
  if (status) status = add_gpus(*tree, proc, minors);
  if (status) status = add_capabilities(*tree, proc, minors);
  if (status) status = tree->attach(target->get());
  return status;
}

}  // namespace bellows::container
