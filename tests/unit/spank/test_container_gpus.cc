// SPDX-License-Identifier: Apache-2.0
/// Which GPUs a process may use, and whether that is fenced.

#include <criterion/criterion.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "spank/container/fence.h"
#include "spank/container/gpu_nodes.h"
#include "tests/unit/spank/gpu_support.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::container;

namespace {

constexpr const char* kNoCgroup = "needs root and cgroup v1's devices controller";

/// Up to the first control node.
std::string gpus_in(const std::string& described) {
  return described.substr(0, described.find(" nvidia-"));
}

/// A cgroup v1 of the devices controller; without it the tests that need one say so and end.
class DeviceCgroup {
 public:
  DeviceCgroup() : path_("/sys/fs/cgroup/devices/bellows-test-" + std::to_string(::getpid())) {
    there_ = is_root() && fs::exists("/sys/fs/cgroup/devices/devices.list") &&
             ::mkdir(path_.c_str(), 0755) == 0;
  }
  ~DeviceCgroup() {
    if (there_) ::rmdir(path_.c_str());
  }
  explicit operator bool() const { return there_; }
  bool deny(unsigned major, unsigned minor, const std::string& rights = "rwm") const {
    return put("devices.deny",
               "c " + std::to_string(major) + ":" + std::to_string(minor) + " " + rights);
  }
  /// This process and its children.
  bool enter() const { return put("cgroup.procs", std::to_string(::getpid())); }

 private:
  bool put(const char* file, const std::string& text) const {
    std::ofstream out(path_ + "/" + file);
    out << text << std::flush;
    return out.good();
  }

  std::string path_;
  bool there_ = false;
};

}  // namespace

TestSuite(gpus, .timeout = 60);

Test(gpus, none_without_a_driver) {
  ScratchDir scratch;
  expect_text(found_in(scratch.path()), "");
  write(scratch.path() + "/dev/null", "");
  expect_text(found_in(scratch.path()), "");
}

Test(gpus, all_by_minor_then_controls) {
  if (!makes_nodes()) cr_skip_test("%s", kNoNodes);
  ScratchDir scratch;
  make_dev(scratch.path(), 12);
  expect_text(found_in(scratch.path()),
              "nvidia0:ok nvidia1:ok nvidia2:ok nvidia3:ok nvidia4:ok nvidia5:ok nvidia6:ok "
              "nvidia7:ok nvidia8:ok nvidia9:ok nvidia10:ok nvidia11:ok nvidia-caps/nvidia-cap1:ok "
              "nvidia-caps/nvidia-cap2:ok nvidia-modeset:ok nvidia-uvm:ok nvidia-uvm-tools:ok "
              "nvidiactl:ok");
}

Test(gpus, minor_is_the_nodes_not_the_names) {
  if (!makes_nodes()) cr_skip_test("%s", kNoNodes);
  ScratchDir scratch;
  make_node(scratch.path() + "/dev/nvidia0", kNvidia, 7);
  auto nodes = find_gpu_nodes(scratch.path());
  cr_assert(nodes.ok() && nodes->size() == 1);
  cr_expect(nodes->front().minor == 7);
}

Test(gpus, user_is_kept_out_by_mode) {
  if (!makes_nodes()) cr_skip_test("%s", kNoNodes);
  ScratchDir scratch;
  make_dev(scratch.path(), 2);
  cr_assert(::chmod((scratch.path() + "/dev/nvidia1").c_str(), 0660) == 0);
  const std::string got = in_child([&] {
    std::string error = become_user();
    return error.empty() ? found_in(scratch.path()) : error;
  });
  expect_text(got,
              "nvidia0:ok nvidia1:mode nvidia-caps/nvidia-cap1:mode nvidia-caps/nvidia-cap2:ok "
              "nvidia-modeset:ok nvidia-uvm:ok nvidia-uvm-tools:ok nvidiactl:ok");
}

Test(gpus, dev_that_cannot_be_listed_is_an_error) {
  if (!makes_nodes()) cr_skip_test("%s", kNoNodes);
  ScratchDir scratch;
  make_dev(scratch.path(), 2);
  cr_assert(::chmod((scratch.path() + "/dev").c_str(), 0711) == 0);
  const std::string got = in_child([&] {
    std::string error = become_user();
    return error.empty() ? found_in(scratch.path()) : error;
  });
  cr_expect(got.starts_with("error: cannot open /dev"), "%s", got.c_str());
}

Test(gpus, device_cgroup_is_asked_without_opening) {
  DeviceCgroup cgroup;
  if (!cgroup || !makes_nodes()) cr_skip_test("%s", kNoCgroup);
  ScratchDir scratch;
  make_dev(scratch.path(), 4);
  cr_assert(::chmod((scratch.path() + "/dev/nvidia3").c_str(), 0600) == 0);
  for (unsigned minor : {1U, 2U}) cr_assert(cgroup.deny(kNvidia, minor));
  for (const bool as_user : {false, true}) {
    const std::string got = in_child([&]() -> std::string {
      if (!cgroup.enter()) return "cannot enter the cgroup";
      std::string error = as_user ? become_user() : "";
      if (!error.empty()) return error;
      // The same the other way. There is no driver: a node that may be opened says ENXIO.
      const std::string own = opened(scratch.path() + "/dev/nvidia0");
      const std::string fenced = opened(scratch.path() + "/dev/nvidia1");
      return own + ", " + fenced + ", " + gpus_in(found_in(scratch.path()));
    });
    const std::string last = as_user ? "nvidia3:mode" : "nvidia3:ok";
    expect_text(got, "ENXIO, EPERM, nvidia0:ok nvidia1:fenced nvidia2:fenced " + last);
  }
}

Test(gpus, reading_alone_is_a_way_in) {
  DeviceCgroup cgroup;
  if (!cgroup || !makes_nodes()) cr_skip_test("%s", kNoCgroup);
  ScratchDir scratch;
  make_dev(scratch.path(), 2);
  cr_assert(cgroup.deny(kNvidia, 1, "w"));
  const std::string got =
      in_child([&] { return cgroup.enter() ? gpus_in(found_in(scratch.path())) : "no"; });
  expect_text(got, "nvidia0:ok nvidia1:ok");
}

TestSuite(fence, .timeout = 60);

namespace {

struct FenceCase {
  const char* about;
  const char* nodes;
  std::uint64_t given;
  const char* error;  ///< a piece of it; "" for none
};

const FenceCase kFence[] = {
    {"no driver, no GPU", "", 0, ""},
    {"GPUs of another maker", "", 4, ""},
    {"one of one", "a", 1, ""},
    {"one of eight", "fffaffff", 1, ""},
    {"two of eight", "affffffa", 2, ""},
    {"all of eight", "aaaaaaaa", 8, ""},
    {"a step without GPUs", "ffffffff", 0, ""},
    {"a task bound to one of its step's four", "fffaffff", 4, ""},
    {"a task bound to none that is there", "ffffffff", 4, ""},
    {"MIG: seven instances on one GPU", "af", 7, ""},
    {"others' GPUs closed by mode too", "ammmmmmm", 1, ""},
    {"bound to one, another one closed to all", "afffffffm", 4, ""},
    {"no fence", "aaaaaaaa", 1,
     "Slurm gave this step 1 GPU here, but 8 can be opened (/dev/nvidia0, /dev/nvidia1, "},
    {"no fence for a step without GPUs", "aaaaaaaa", 0,
     "Slurm gave this step 0 GPUs here, but 8 can be opened (/dev/nvidia0, "},
    {"no fence on a node with one GPU", "a", 0, "but 1 can be opened (/dev/nvidia0);"},
    {"one leaks", "afffffaf", 1, "but 2 can be opened (/dev/nvidia0, /dev/nvidia6);"},
    {"gres.conf forgot the last one", "affffffa", 1, "name every GPU's file in gres.conf"},
    {"a leak and a mode", "aam", 1, "set ConstrainDevices=yes in cgroup.conf"},
    {"MIG and no fence at all", "aaaaaaaa", 7, "TaskPlugin=task/cgroup"},
    {"nodes for a group only", "mmmm", 2,
     "the owner and mode of /dev/nvidia0, /dev/nvidia1, /dev/nvidia2, /dev/nvidia3 keep this user"},
    {"one of two own closed by mode", "amff", 2, "the owner and mode of /dev/nvidia1 keep"},
    {"bound to one that is closed by mode", "ffmf", 2, "Slurm gave this step 2 GPUs here"},
};

}  // namespace

Test(fence, cases) {
  for (const FenceCase& c : kFence) {
    const Status status = check_fence(gpus_of(c.nodes), c.given);
    const std::string wanted = c.error;
    if (wanted.empty()) {
      cr_expect(status.ok(), "%s: %s", c.about, status.ok() ? "" : status.error().text.c_str());
      continue;
    }
    cr_assert(!status.ok(), "%s: let through", c.about);
    cr_expect(status.error().kind == ErrorKind::denied, "%s", c.about);
    cr_expect(status.error().text.find(wanted) != std::string::npos, "%s: %s", c.about,
              status.error().text.c_str());
  }
}

Test(fence, number_of_gpus_given) {
  using Text = std::optional<std::string_view>;
  struct {
    Text text;
    std::optional<std::uint64_t> most;
    int wanted;  ///< -1: an error
  } const cases[] = {
      {std::nullopt, std::nullopt, 0},
      {std::nullopt, 8, 0},
      {Text("4"), std::nullopt, 4},
      {Text("4"), 8, 4},
      {Text("8"), 2, 2},
      {Text("0"), std::nullopt, 0},
      {Text(""), std::nullopt, -1},
      {Text("-1"), 8, -1},
      {Text("1,2"), std::nullopt, -1},
      {Text("8 "), 8, -1},
      {Text("0x8"), 8, -1},
      {Text("99999999999999999999"), 8, -1},
  };
  for (const auto& c : cases) {
    auto given = gpus_given(c.text, c.most);
    cr_expect(given.ok() == (c.wanted >= 0), "%s", std::string(c.text.value_or("-")).c_str());
    if (given) cr_expect(*given == static_cast<std::uint64_t>(c.wanted));
  }
}

/// From the nodes themselves to the verdict.
Test(fence, real_cgroup) {
  DeviceCgroup cgroup;
  if (!cgroup || !makes_nodes()) cr_skip_test("%s", kNoCgroup);
  ScratchDir scratch;
  make_dev(scratch.path(), 3);
  const auto verdict = [&scratch](std::uint64_t given) -> std::string {
    auto nodes = find_gpu_nodes(scratch.path());
    if (!nodes) return nodes.error().text;
    const Status status = check_fence(*nodes, given);
    return status ? "" : status.error().text;
  };
  cr_expect(verdict(1).find("but 3 can be opened") != std::string::npos);
  for (unsigned minor : {1U, 2U}) cr_assert(cgroup.deny(kNvidia, minor));
  expect_text(in_child([&] { return cgroup.enter() ? verdict(1) : "no"; }), "");
  const std::string none = in_child([&] { return cgroup.enter() ? verdict(0) : "no"; });
  cr_expect(none.find("but 1 can be opened (/dev/nvidia0)") != std::string::npos, "%s",
            none.c_str());
}
