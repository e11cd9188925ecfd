// SPDX-License-Identifier: Apache-2.0
/// What a task that joins a container takes for the container's own /dev and /proc.

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/mount.h>

#include <filesystem>
#include <string>

#include "common/fd.h"
#include "spank/container/own_mounts.h"
#include "tests/unit/gpu_support.h"
#include "tests/unit/scratch_dir.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(own_mounts, .timeout = 60);

bool mounts(const std::string& path, const char* type) {
  fs::create_directories(path);
  return ::mount(type, path.c_str(), type, 0, nullptr) == 0;
}

/// A container's root, with the mounts that its maker put there and others.
std::string make_root(const std::string& root) {
  fs::create_directories(root + "/sys");
  const std::string sys = root + "/sys";
  const bool made = mounts(root + "/dev", "tmpfs") && mounts(root + "/proc", "proc") &&
                    mounts(root + "/tmp", "tmpfs") &&
                    ::mount("/proc/sys", sys.c_str(), nullptr, MS_BIND, nullptr) == 0;
  return made ? "" : "cannot mount";
}

std::string told(const Result<Fd>& opened) { return opened ? "own" : opened.error().text; }

/// What is said of both once the image's user has had his way with their names.
std::string found(const std::function<void(const std::string&)>& rearrange) {
  ScratchDir scratch;
  const std::string root = scratch.path();
  return in_child([&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return "no mount namespace";
    if (std::string error = make_root(root); !error.empty()) return error;
    rearrange(root);
    const Fd top = path_of(root);
    return told(open_own_dev(top.get())) + "; " + told(open_own_proc(top.get()));
  });
}

/// In the place of both, which stay mounted elsewhere.
void move_away(const std::string& root) {
  for (const std::string name : {"/dev", "/proc"}) {
    fs::create_directories(root + "/old" + name);
    cr_assert(::mount((root + name).c_str(), (root + "/old" + name).c_str(), nullptr, MS_MOVE,
                      nullptr) == 0);
    fs::remove(root + name);
  }
}

const std::string kNeither =
    "/dev is not the one that the container was made with; "
    "/proc is not the one that the container was made with";

Test(own_mounts, are_those_of_its_maker) {
  if (!is_root()) cr_skip_test("mounts are made by root");
  expect_text(found([](const std::string&) {}), "own; own");
}

Test(own_mounts, are_no_directories_of_the_images_user) {
  if (!is_root()) cr_skip_test("mounts are made by root");
  expect_text(found([](const std::string& root) {
                move_away(root);
                fs::create_directories(root + "/dev");
                fs::create_directories(root + "/proc/self/fd");
              }),
              kNeither);
}

Test(own_mounts, are_not_found_by_links) {
  if (!is_root()) cr_skip_test("mounts are made by root");
  expect_text(found([](const std::string& root) {
                move_away(root);
                fs::create_directory_symlink("old/dev", root + "/dev");
                fs::create_directory_symlink("old/proc", root + "/proc");
              }),
              "cannot open /dev: Not a directory; cannot open /proc: Not a directory");
}

/// A user's own mounts, or what lies below another, renamed.
Test(own_mounts, are_no_other_mounts) {
  if (!is_root()) cr_skip_test("mounts are made by root");
  const auto put = [](const std::string& root, const std::string& from, const std::string& to) {
    fs::create_directories(root + to);
    cr_assert(::mount((root + from).c_str(), (root + to).c_str(), nullptr, MS_BIND, nullptr) == 0);
  };
  expect_text(found([&](const std::string& root) {
                move_away(root);
                put(root, "/sys", "/dev");
                put(root, "/tmp", "/proc");
              }),
              kNeither);
  expect_text(found([&](const std::string& root) {
                move_away(root);
                put(root, "/old/proc", "/dev");
                put(root, "/sys", "/proc");
              }),
              kNeither);
}

}  // namespace
