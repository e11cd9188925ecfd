// SPDX-License-Identifier: Apache-2.0
/// What a task that joins a container takes for the container's own /dev and /proc.

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/mount.h>

#include <filesystem>
#include <string>

#include "common/fd.h"
#include "spank/container/mount_api.h"
#include "spank/container/own_mounts.h"
#include "tests/unit/spank/gpu_support.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(own_mounts, .timeout = 60);

bool mounts(const std::string& path, const char* type) {
  fs::create_directories(path);
  return ::mount(type, path.c_str(), type, 0, nullptr) == 0;
}

/// A container's root, with the mounts that its maker put there and others of the same kinds. On a
/// tmpfs, so that a directory which is none of them differs from /dev in that alone.
Result<OwnMounts> make_root(const std::string& root) {
  if (!mounts(root, "tmpfs") || !mounts(root + "/dev", "tmpfs") ||
      !mounts(root + "/proc", "proc") || !mounts(root + "/tmp", "tmpfs") ||
      !mounts(root + "/other", "proc"))
    return errno_error("mount in", root);
  const auto dev = mount_number(path_of(root + "/dev").get(), "/dev");
  const auto proc = mount_number(path_of(root + "/proc").get(), "/proc");
  if (!dev || !proc) return errno_error("look at", root);
  return OwnMounts{*dev, *proc};
}

std::string told(const Result<Fd>& opened) { return opened ? "own" : opened.error().text; }

/// What is said of /dev, of /proc, and of /dev as what it was before, once the image's user has had
/// his way with their names.
std::string found(const std::function<void(const std::string&)>& rearrange) {
  ScratchDir scratch;
  const std::string root = scratch.path() + "/root";
  return in_child([&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return "no mount namespace";
    const auto own = make_root(root);
    if (!own) return own.error().text;
    const Fd before = path_of(root + "/dev");
    rearrange(root);
    const Fd top = path_of(root);
    return told(open_own(top.get(), "/dev", own->dev)) + "; " +
           told(open_own(top.get(), "/proc", own->proc)) + "; " +
           told(open_same(top.get(), "/dev", before.get()));
  });
}

/// As a mount goes with the directory that it is on.
void move(const std::string& root, const std::string& from, const std::string& to) {
  fs::create_directories(root + to);
  cr_assert(::mount((root + from).c_str(), (root + to).c_str(), nullptr, MS_MOVE, nullptr) == 0);
  fs::remove(root + from);
}

void move_away(const std::string& root) {
  move(root, "/dev", "/old/dev");
  move(root, "/proc", "/old/proc");
}

const std::string kNot =
    " is not the one that the container was made with; leave the image's directories where they "
    "are while the job runs";
const std::string kNotDev = "/dev" + kNot;
const std::string kNotProc = "/proc" + kNot;
const std::string kNone = kNotDev + "; " + kNotProc + "; " + kNotDev;

Test(own_mounts, are_those_of_its_maker) {
  if (!is_root()) cr_skip_test("mounts are made by root");
  expect_text(found([](const std::string&) {}), "own; own; own");
}

Test(own_mounts, are_no_directories_of_the_images_user) {
  if (!is_root()) cr_skip_test("mounts are made by root");
  expect_text(found([](const std::string& root) {
                move_away(root);
                fs::create_directories(root + "/dev");
                fs::create_directories(root + "/proc/self/fd");
              }),
              kNone);
}

/// As in an image whose own names are links.
Test(own_mounts, are_found_by_links_to_them) {
  if (!is_root()) cr_skip_test("mounts are made by root");
  expect_text(found([](const std::string& root) {
                move_away(root);
                fs::create_directory_symlink("old/dev", root + "/dev");
                fs::create_directory_symlink("old/proc", root + "/proc");
              }),
              "own; own; own");
}

Test(own_mounts, are_not_found_by_links_elsewhere) {
  if (!is_root()) cr_skip_test("mounts are made by root");
  expect_text(found([](const std::string& root) {
                move_away(root);
                fs::create_directory_symlink("tmp", root + "/dev");
                fs::create_directory_symlink("other", root + "/proc");
              }),
              kNone);
}

/// The user's own, or the job's /tmp.
Test(own_mounts, are_no_other_mounts_of_their_kind) {
  if (!is_root()) cr_skip_test("mounts are made by root");
  expect_text(found([](const std::string& root) {
                move_away(root);
                move(root, "/tmp", "/dev");
                move(root, "/other", "/proc");
              }),
              kNone);
}

Test(own_mounts, are_kept_as_text) {
  const OwnMounts own{71, 18446744073709551615U};
  cr_expect(own_text(own) == "71 18446744073709551615");
  const auto read = parse_own(own_text(own));
  cr_assert(read);
  cr_expect(*read == own);
  for (const char* text : {"", " ", "71", "71 ", " 71", "71 x", "71 72 73", "-1 2"})
    cr_expect(!parse_own(text), "%s", text);
}

}  // namespace
