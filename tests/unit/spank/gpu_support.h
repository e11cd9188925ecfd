// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "common/fd.h"
#include "spank/container/gpu_nodes.h"
#include "tests/unit/support/scratch_dir.h"

namespace bellows::container {

namespace fs = std::filesystem;

/// No driver can have it: an open that gets as far says ENXIO, also on a machine with GPUs.
constexpr unsigned kNvidia = 600;
constexpr unsigned kDeadline = 30;
constexpr uid_t kUser = 54321;

inline void write(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
  cr_assert(fs::exists(path), "%s", path.c_str());
}

inline std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline bool is_root() { return ::geteuid() == 0; }

inline void make_node(const std::string& path, unsigned major, unsigned minor, mode_t mode = 0666) {
  fs::create_directories(fs::path(path).parent_path());
  cr_assert(::mknod(path.c_str(), S_IFCHR | mode, makedev(major, minor)) == 0, "%s: %s",
            path.c_str(), std::strerror(errno));
  cr_assert(::chmod(path.c_str(), mode) == 0);
}

/// A host with GPUs as the driver's modules and nvidia-modprobe make it, below a scratch directory.
inline void make_dev(const std::string& root, unsigned gpus) {
  for (unsigned i = 0; i < gpus; i++)
    make_node(root + "/dev/nvidia" + std::to_string(i), kNvidia, i);
  make_node(root + "/dev/nvidiactl", kNvidia, 255);
  make_node(root + "/dev/nvidia-modeset", kNvidia, 254);
  make_node(root + "/dev/nvidia-uvm", 508, 0);
  make_node(root + "/dev/nvidia-uvm-tools", 508, 1);
  make_node(root + "/dev/nvidia-caps/nvidia-cap1", 511, 1, 0400);
  make_node(root + "/dev/nvidia-caps/nvidia-cap2", 511, 2, 0444);
  make_node(root + "/dev/nvidia-caps-imex-channels/channel0", 510, 0);
  make_node(root + "/dev/nvidia-nvswitch0", 509, 0);
  make_node(root + "/dev/null", 1, 3);
  write(root + "/dev/nvidia99", "not a device");
  cr_assert(::chmod(root.c_str(), 0755) == 0);
}

inline std::string bus_of(unsigned minor) {
  char text[32];
  std::snprintf(text, sizeof text, "0000:%02x:00.0", 0x1b + 16 * minor);
  return text;
}

/// As nvidia.ko shows it; the GPUs' order on the bus is not that of their minors.
inline void make_proc(const std::string& root, unsigned gpus) {
  const std::string driver = root + "/proc/driver/nvidia";
  write(driver + "/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n");
  write(driver + "/params",
        "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n"
        "DeviceFileMode: 438\nTemporaryFilePath: \"\"\n");
  write(driver + "/registry", "Binary: \"\"\n");
  write(driver + "/suspend", "");
  for (unsigned i = 0; i < gpus; i++) {
    write(driver + "/gpus/" + bus_of(gpus - 1 - i) + "/information",
          "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 512\nGPU UUID: \t GPU-0\n"
          "Bus Location: \t " +
              bus_of(gpus - 1 - i) + "\nDevice Minor: \t " + std::to_string(i) +
              "\nGPU Excluded:\t No\n");
    write(driver + "/gpus/" + bus_of(gpus - 1 - i) + "/power", "Runtime D3 status: Disabled\n");
    write(driver + "/capabilities/gpu" + std::to_string(i) + "/mig/gi1/access",
          "DeviceFileMinor: 12\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
  }
  write(driver + "/capabilities/mig/config", "DeviceFileMinor: 1\n");
  write(driver + "/capabilities/fabric-imex-mgmt", "DeviceFileMinor: 3\n");
}

/// "" or what went wrong first, of `check` in a process of its own with a deadline. Tests in
/// namespaces and cgroups must not leave their own process there.
inline std::string in_child(const std::function<std::string()>& check) {
  int ends[2];
  cr_assert(::pipe(ends) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(kDeadline);
    const std::string text = check();
    (void)!::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[1024];
  ssize_t n = 0;
  while ((n = ::read(ends[0], buffer, sizeof buffer)) > 0)
    text.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status != 0) text += " (the child ended with status " + std::to_string(status) + ")";
  return text;
}

inline bool set_capabilities(unsigned mask) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  data[0].effective = data[0].permitted = mask;
  return ::syscall(SYS_capset, &header, data) == 0;
}

inline std::string become_user() {
  if (::setgroups(0, nullptr) != 0 || ::setgid(kUser) != 0 || ::setuid(kUser) != 0)
    return "cannot become a user";
  return "";
}

/// The same with CAP_SYS_ADMIN, as the plugin's code runs in task_init.
inline std::string become_user_who_mounts() {
  if (::prctl(PR_SET_KEEPCAPS, 1) != 0) return "cannot keep capabilities";
  if (std::string error = become_user(); !error.empty()) return error;
  return set_capabilities(1U << CAP_SYS_ADMIN) ? "" : "cannot raise CAP_SYS_ADMIN";
}

/// What the kernel says to an open: "ENXIO" where it would ask a driver, and there is none.
inline std::string opened(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  return fd ? "opened" : ::strerrorname_np(errno);
}

/// Whether device nodes can be made and opened here: not in a user namespace, nor on nodev.
inline bool makes_nodes() {
  ScratchDir scratch;
  const std::string path = scratch.path() + "/node";
  return is_root() && ::mknod(path.c_str(), S_IFCHR | 0666, makedev(kNvidia, 0)) == 0 &&
         opened(path) != "EACCES";
}
inline constexpr const char* kNoNodes =
    "device nodes are made by root, on a file system that has them";

/// "nvidia0:ok nvidia1:fenced nvidia2:mode nvidiactl:ok".
inline std::string describe(const std::vector<GpuNode>& nodes) {
  std::string text;
  for (const GpuNode& node : nodes) {
    text += (text.empty() ? "" : " ") + node.name;
    if (node.access == DeviceAccess::allowed) text += ":ok";
    if (node.access == DeviceAccess::fenced) text += ":fenced";
    if (node.access == DeviceAccess::by_mode) text += ":mode";
  }
  return text;
}

inline std::string found_in(const std::string& root) {
  auto nodes = find_gpu_nodes(root);
  return nodes ? describe(*nodes) : "error: " + nodes.error().text;
}

inline void expect_text(const std::string& got, const std::string& wanted) {
  cr_expect(got == wanted, "got:\n%s\nwanted:\n%s", got.c_str(), wanted.c_str());
}

/// One letter for each GPU: what the kernel says of nvidia0, nvidia1, ... a(llowed), f(enced),
/// m(ode).
inline std::vector<GpuNode> gpus_of(const std::string& letters) {
  std::vector<GpuNode> nodes;
  for (char letter : letters) {
    GpuNode node;
    node.minor = static_cast<unsigned>(nodes.size());
    node.name = "nvidia" + std::to_string(node.minor);
    node.access = letter == 'a'   ? DeviceAccess::allowed
                  : letter == 'f' ? DeviceAccess::fenced
                                  : DeviceAccess::by_mode;
    nodes.push_back(node);
  }
  nodes.push_back({"nvidiactl", GpuNode::Kind::control, 255, DeviceAccess::allowed});
  nodes.push_back({"nvidia-uvm", GpuNode::Kind::control, 0, DeviceAccess::allowed});
  nodes.push_back({"nvidia-caps/nvidia-cap1", GpuNode::Kind::control, 1, DeviceAccess::by_mode});
  return nodes;
}

/// In a child with mounts of its own, as the job's user with CAP_SYS_ADMIN alone.
inline std::string in_view(const std::function<Status()>& make,
                           const std::function<std::string()>& look) {
  return in_child([&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return "no mount namespace";
    if (std::string error = become_user_who_mounts(); !error.empty()) return error;
    const Status status = make();
    if (!status) return "error: " + status.error().text;
    if (!set_capabilities(0)) return "cannot drop capabilities";
    return look();
  });
}

inline Fd path_of(const std::string& path) {
  auto fd = open_file(path, O_PATH);
  return fd ? *std::move(fd) : Fd();
}

inline std::string list(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return error ? error.message() : text;
}

}  // namespace bellows::container
