// SPDX-License-Identifier: Apache-2.0
/// What a process sees of the host's GPUs, in mount namespaces of the tests' own.

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/fd.h"
#include "spank/container/gpu_nodes.h"
#include "spank/container/gpu_view.h"
#include "spank/container/mount_api.h"
#include "tests/unit/spank/gpu_support.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::container;

TestSuite(gpu_view, .timeout = 60);

Test(gpu_view, plan) {
  auto nodes = gpus_of("faam");
  nodes.push_back({"nvidia-caps/nvidia-cap21", GpuNode::Kind::control, 21, DeviceAccess::fenced});
  const GpuView wanted{
      {"nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"}, {"nvidia0", "nvidia3"}, {1, 2}};
  cr_expect(plan_view(nodes) == wanted);
  // Nothing to control: no control nodes.
  const GpuView none{{}, {"nvidia0", "nvidia1"}, {}};
  cr_expect(plan_view(gpus_of("ff")) == none);
  cr_expect(plan_view(gpus_of("")) == GpuView{});
}

namespace {

/// How many mounts lie on a path, one upon another.
std::string mounts_at(const std::string& path) {
  std::ifstream table("/proc/self/mountinfo");
  std::string line;
  int number = 0;
  while (std::getline(table, line)) number += line.find(" " + path + " ") != line.npos;
  return std::to_string(number);
}

/// Eight GPUs, of which this process has nvidia2 and nvidia5.
struct Host {
  Host() {
    make_dev(scratch.path(), 8);
    make_proc(scratch.path(), 8);
    write(scratch.path() + "/dead", "");
    cr_assert(::chmod((scratch.path() + "/dead").c_str(), 0) == 0);
    for (GpuNode& node : nodes)
      if (node.name == "nvidia2" || node.name == "nvidia5") node.access = DeviceAccess::allowed;
    view = plan_view(nodes);
  }
  Status cover(const std::vector<unsigned>& minors) const {
    return cover_driver_proc(path_of(root + "/proc").get(), minors);
  }

  ScratchDir scratch;
  std::string root = scratch.path();
  std::string driver = root + "/proc/driver/nvidia";
  std::vector<GpuNode> nodes = gpus_of("ffffffff");
  GpuView view;
};

}  // namespace

Test(gpu_view, hides_the_gpus_of_others) {
  if (!makes_nodes()) cr_skip_test("%s", kNoNodes);
  Host host;
  const std::string got = in_view(
      [&] {
        return hide_nodes(path_of(host.root + "/dev").get(), host.view.hidden,
                          path_of(host.root + "/dead").get());
      },
      [&] {
        std::string text;
        for (unsigned i = 0; i < 8; i++)
          text += opened(host.root + "/dev/nvidia" + std::to_string(i)) + " ";
        return text + opened(host.root + "/dev/nvidiactl") + "; " + found_in(host.root);
      });
  expect_text(got,
              "EACCES EACCES ENXIO EACCES EACCES ENXIO EACCES EACCES ENXIO; nvidia2:ok nvidia5:ok "
              "nvidia-caps/nvidia-cap1:mode nvidia-caps/nvidia-cap2:ok nvidia-modeset:ok "
              "nvidia-uvm:ok nvidia-uvm-tools:ok nvidiactl:ok");
  cr_expect(opened(host.root + "/dev/nvidia0") == "ENXIO", "the view leaked out of its namespace");
}

Test(gpu_view, passes_over_nodes_that_are_not_there) {
  if (!makes_nodes()) cr_skip_test("%s", kNoNodes);
  Host host;
  const std::string got = in_view(
      [&] {
        return hide_nodes(path_of(host.root + "/dev").get(), {"nvidia77", "nvidia1"},
                          path_of(host.root + "/dead").get());
      },
      [&] { return opened(host.root + "/dev/nvidia1") + opened(host.root + "/dev/nvidia77"); });
  expect_text(got, "EACCESENOENT");
}

Test(gpu_view, clones_for_a_container) {
  if (!makes_nodes()) cr_skip_test("%s", kNoNodes);
  Host host;
  for (const std::string& name : host.view.shown) write(host.root + "/box/dev/" + name, "");
  const std::string got = in_view(
      [&]() -> Status {
        auto clones = clone_nodes(path_of(host.root + "/dev").get(), host.view.shown);
        if (!clones) return clones.error();
        for (const Device& clone : *clones) {
          const std::string target = host.root + "/box/dev/" + clone.name;
          auto status = attach(clone.mount.get(), path_of(target).get(), target);
          if (!status) return status;
        }
        return {};
      },
      [&] { return found_in(host.root + "/box") + "; " + opened(host.root + "/box/dev/nvidia2"); });
  expect_text(got, "nvidia2:ok nvidia5:ok nvidia-uvm:ok nvidiactl:ok; ENXIO");
}

Test(gpu_view, driver_proc_of_own_gpus) {
  if (!makes_nodes()) cr_skip_test("%s", kNoNodes);
  Host host;
  const std::string got = in_view(
      [&] { return host.cover(host.view.minors); },
      [&] {
        const std::string& driver = host.driver;
        const std::string made =
            ::creat((driver + "/x").c_str(), 0644) < 0 && errno == EROFS ? "read-only" : "writable";
        return list(driver) + "; " + list(driver + "/gpus") + "; " +
               list(driver + "/gpus/" + bus_of(5)) + "; " + list(driver + "/capabilities") + "; " +
               made + "\n" + read(driver + "/params") + read(driver + "/version");
      });
  // nvidia2 is the sixth on the bus, nvidia5 the third.
  expect_text(got, "capabilities gpus params registry version; " + bus_of(2) + " " + bus_of(5) +
                       "; information power; fabric-imex-mgmt gpu2 gpu5 mig; read-only\n"
                       "ResmanDebugLevel: 4294967295\nDeviceFileUID: 0\nDeviceFileMode: 438\n"
                       "TemporaryFilePath: \"\"\nModifyDeviceFiles: 0\n" +
                       read(host.driver + "/version"));
}

/// As a task does that joins a container made for others.
Test(gpu_view, driver_proc_is_covered_again) {
  if (!makes_nodes()) cr_skip_test("%s", kNoNodes);
  Host host;
  const std::string got = in_view(
      [&]() -> Status {
        auto status = host.cover({2, 5});
        return status ? host.cover({5, 6}) : status;
      },
      [&] {
        return list(host.driver + "/gpus") + "; " + list(host.driver + "/capabilities") + "; " +
               mounts_at(host.driver);
      });
  expect_text(got, bus_of(1) + " " + bus_of(2) + "; fabric-imex-mgmt gpu5 gpu6 mig; 1");
}

/// A user may have made what is /proc by then: nothing goes by way of it.
Test(gpu_view, driver_proc_is_covered_again_without_proc) {
  if (!makes_nodes()) cr_skip_test("%s", kNoNodes);
  Host host;
  const std::string got = in_view(
      [&]() -> Status {
        if (::mount("hides", "/proc", "tmpfs", 0, nullptr) != 0)
          return errno_error("hide", "/proc");
        auto status = host.cover({2, 5});
        return status ? host.cover({5, 6}) : status;
      },
      [&] { return list(host.driver + "/gpus"); });
  expect_text(got, bus_of(1) + " " + bus_of(2));
}

Test(gpu_view, no_gpus_of_ones_own) {
  if (!makes_nodes()) cr_skip_test("%s", kNoNodes);
  Host host;
  const std::string got =
      in_view([&] { return host.cover({}); },
              [&] { return list(host.driver) + "; " + list(host.driver + "/gpus"); });
  expect_text(got, "capabilities gpus params registry version; ");
}

Test(gpu_view, driver_proc_without_a_driver) {
  if (!is_root()) cr_skip("mounts are made by root");
  ScratchDir scratch;
  fs::create_directories(scratch.path() + "/proc");
  cr_assert(::chmod(scratch.path().c_str(), 0755) == 0);
  const Fd proc = path_of(scratch.path() + "/proc");
  const std::string got = in_view([&] { return cover_driver_proc(proc.get(), {0}); },
                                  [&] { return list(scratch.path() + "/proc"); });
  expect_text(got, "");
}

/// A driver older than MIG, one that is just being unloaded, and files that are no good.
Test(gpu_view, driver_proc_with_less_in_it) {
  if (!makes_nodes()) cr_skip_test("%s", kNoNodes);
  Host host;
  fs::remove_all(host.driver + "/capabilities");
  fs::remove(host.driver + "/registry");
  fs::remove(host.driver + "/gpus/" + bus_of(0) + "/information");
  write(host.driver + "/gpus/" + bus_of(1) + "/information", "Device Minor: none\n");
  write(host.driver + "/params", "");
  const std::string got = in_view(
      [&] {
        return host.cover({5, 6});
      },
      [&] {
        return list(host.driver) + "; " + list(host.driver + "/gpus") + "; " +
               read(host.driver + "/params");
      });
  expect_text(got, "gpus params version; " + bus_of(2) + "; ModifyDeviceFiles: 0\n");
}
