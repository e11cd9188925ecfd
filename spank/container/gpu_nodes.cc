// SPDX-License-Identifier: Apache-2.0
#include "spank/container/gpu_nodes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <tuple>

#include "common/fd.h"
#include "common/text.h"
#include "spank/container/root_files.h"

namespace bellows::container {
namespace {

constexpr std::string_view kPrefix = "nvidia";

/// "nvidia0" and "nvidia12", not "nvidia-uvm" or "nvidiactl".
bool is_gpu(std::string_view name) {
  return name.starts_with(kPrefix) && parse_uint(name.substr(kPrefix.size())).has_value();
}

bool is_control_node(std::string_view name) {
  return name == "nvidiactl" || name == "nvidia-uvm" || name == "nvidia-uvm-tools" ||
         name == "nvidia-modeset";
}

/// Nothing for what isn't a character device, such as what an earlier view put over a GPU.
Result<std::optional<GpuNode>> look_at(const std::string& dev, const std::string& name,
                                       GpuNode::Kind kind) {
  const std::string path = dev + "/" + name;
  auto fd = open_file(path, O_PATH | O_NOFOLLOW);
  if (!fd) {
    if (fd.error().kind == ErrorKind::not_found) return std::optional<GpuNode>{};
    return fd.error();
  }
  struct stat status {};
  if (::fstat(fd->get(), &status) != 0) return errno_error("stat", path);
  if (!S_ISCHR(status.st_mode)) return std::optional<GpuNode>{};
  auto access = ask_access(fd->get(), path);
  if (!access) return access.error();
  return std::optional<GpuNode>{GpuNode{name, kind, minor(status.st_rdev), *access}};
}

std::optional<GpuNode::Kind> kind_in_dev(std::string_view name) {
  if (is_gpu(name)) return GpuNode::Kind::gpu;
  if (is_control_node(name)) return GpuNode::Kind::control;
  return std::nullopt;
}

/// All of a folder below /dev is control nodes; "" is /dev itself. One that can't be listed is an
/// error: GPUs that aren't seen would pass for fenced.
Status add_folder(int root, const std::string& dev, const std::string& folder,
                  std::vector<GpuNode>& nodes) {
  // /dev has hundreds of others, and this is done for each task.
  auto names = list_in_root(root, "/dev/" + folder, folder.empty() ? kPrefix : "");
  if (!names) return names.error();
  for (const std::string& name : *names) {
    const auto kind = folder.empty() ? kind_in_dev(name) : GpuNode::Kind::control;
    if (!kind) continue;
    auto node = look_at(dev, folder + name, *kind);
    if (!node) return node.error();
    if (*node) nodes.push_back(**node);
  }
  return {};
}

}  // namespace

Result<DeviceAccess> ask_access(int node, const std::string& path) {
  // The system call itself: a C library that had to emulate it would only look at the mode. In the
  // kernel inode_permission() asks the owner and mode first (EACCES), then
  // devcgroup_inode_permission(), which covers cgroup v1's lists and v2's programs alike (EPERM).
  // Without AT_EACCESS the answer is for the real user and, unless that is root, without
  // capabilities: what the job's program will be.
  bool by_mode = false;
  for (const int right : {R_OK, W_OK}) {
    if (::syscall(SYS_faccessat2, node, "", right, AT_EMPTY_PATH) == 0)
      return DeviceAccess::allowed;
    if (errno != EPERM && errno != EACCES) return errno_error("ask for access to", path);
    by_mode = by_mode || errno == EACCES;
  }
  return by_mode ? DeviceAccess::by_mode : DeviceAccess::fenced;
}

Result<std::vector<GpuNode>> find_gpu_nodes(const std::string& root) {
  const std::string dev = (root == "/" ? "" : root) + "/dev";
  const auto top = open_file(root, O_PATH | O_DIRECTORY);
  if (!top) return top.error();
  std::vector<GpuNode> nodes;
  Status status = add_folder(top->get(), dev, "", nodes);
  if (status) status = add_folder(top->get(), dev, "nvidia-caps/", nodes);
  if (!status) return status.error();
  const auto key = [](const GpuNode& node) {
    const bool gpu = node.kind == GpuNode::Kind::gpu;
    return std::make_tuple(!gpu, gpu ? node.minor : 0, std::string_view(node.name));
  };
  std::sort(nodes.begin(), nodes.end(),
            [&key](const GpuNode& a, const GpuNode& b) { return key(a) < key(b); });
  return nodes;
}

}  // namespace bellows::container
