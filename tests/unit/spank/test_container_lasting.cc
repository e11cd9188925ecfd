// SPDX-License-Identifier: Apache-2.0
// Directories of containers that outlive their jobs: one job at a time, one image, and a hostile
// owner.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/lasting/lasting.h"
#include "tests/unit/spank/container_rootfs_support.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(lasting, .timeout = 60);

const lasting::MadeFrom kImage{"/images/a b.sqsh", "file-7-4096-1.000000002"};

std::string text_of_use(const Result<lasting::Use>& use) {
  if (!use) return use.error().text;
  return fmt::format("{}{}", use->made ? "made" : "found", use->lock ? ", locked" : "");
}

/// `hostile` is what the user does before the container t is used, in the user's directory of them.
std::string used(const std::function<void(const std::string& users)>& hostile) {
  const World world;
  const std::string top = world.directory("containers");
  return run_as_user([&] { cr_assert(lasting::make_users(top, kUser, kUser).ok()); },
                     [&]() -> std::string {
                       const auto users = lasting::find_users(top, kUser);
                       if (!users) return users.error().text;
                       hostile(fmt::format("{}/{}", top, kUser));
                       return text_of_use(lasting::use(users->get(), "t", kImage, 7));
                     });
}

void write(const std::string& path) { std::ofstream(path) << "text"; }

#define SAYS(found, words)                                                                   \
  do {                                                                                       \
    const std::string found_text = (found);                                                  \
    cr_expect(found_text.find(words) != std::string::npos, "found: %s", found_text.c_str()); \
  } while (false)

Test(lasting, one_job_at_a_time_has_a_container) {
  NEEDS_ROOT();
  const World world;
  const std::string top = world.directory("containers");
  const std::string said =
      run_as_user([&] { cr_assert(lasting::make_users(top, kUser, kUser).ok()); },
                  [&]() -> std::string {
                    const auto users = lasting::find_users(top, kUser);
                    if (!users) return users.error().text;
                    const int at = users->get();
                    auto first = lasting::use(at, "t", kImage, 7);
                    std::string text = text_of_use(first);
                    text += "; " + text_of_use(lasting::use(at, "t", kImage, 7));
                    const auto other = lasting::use(at, "t", kImage, 8);
                    if (!other.ok() && other.error().kind == ErrorKind::busy &&
                        other.error().text.find("in use by job 7") != std::string::npos)
                      text += "; busy";
                    first->lock.reset();
                    text += "; " + text_of_use(lasting::use(at, "t", kImage, 8));
                    const auto origin = lasting::origin_of(at, "t");
                    if (origin && *origin && **origin == kImage) text += "; " + (*origin)->image;
                    const auto none = lasting::origin_of(at, "none");
                    return text + (none && !*none ? "; none" : "");
                  });
  EQUALS(said, "made, locked; found; busy; found, locked; /images/a b.sqsh; none");
}

Test(lasting, another_image_is_refused) {
  NEEDS_ROOT();
  SAYS(used([](const std::string& users) {
         ::mkdir((users + "/t").c_str(), 0700);
         cr_assert(::symlink("1 file-8-4096-1.000000002 /images/a b.sqsh",
                             (users + "/t/made-from").c_str()) == 0);
       }),
       "bellows container remove t");
}

Test(lasting, what_is_not_as_it_is_made_is_refused) {
  NEEDS_ROOT();
  EQUALS(used([](const std::string&) {}), "made, locked");
  SAYS(used([](const std::string& users) {
         ::mkdir((users + "/elsewhere").c_str(), 0700);
         cr_assert(::symlink("elsewhere", (users + "/t").c_str()) == 0);
       }),
       "the container t cannot be used");
  SAYS(used([](const std::string& users) { write(users + "/t"); }), "cannot be used");
  const auto with = [](const char* name, const std::function<void(const std::string&)>& make) {
    return used([&](const std::string& users) {
      ::mkdir((users + "/t").c_str(), 0700);
      make(fmt::format("{}/t/{}", users, name));
    });
  };
  SAYS(with("lock", [](const std::string& path) { ::mkfifo(path.c_str(), 0600); }), "its lock is");
  SAYS(with("lock", [](const std::string& path) { ::mkdir(path.c_str(), 0700); }),
       "cannot be used");
  SAYS(with("lock", [](const std::string& path) { (void)!::symlink("/etc/passwd", path.c_str()); }),
       "cannot be used");
  SAYS(with("lock",
            [](const std::string& path) {
              write(path + "2");
              std::filesystem::create_hard_link(path + "2", path);
            }),
       "its lock is");
  for (const char* text : {"1", "2 file-1 /i", "1 file-1", "1  /i", "1 file/1 /i", "1 file-1 /i\n"})
    SAYS(with("made-from",
              [text](const std::string& path) { cr_assert(::symlink(text, path.c_str()) == 0); }),
         "is not understood");
}

Test(lasting, a_users_directory_is_roots_to_give) {
  NEEDS_ROOT();
  const World world;
  const std::string top = world.directory("containers");
  world.directory(fmt::format("containers/{}", kUser), 0700);
  cr_expect(::chown(fmt::format("{}/{}", top, kUser).c_str(), kUser + 1, kUser) == 0);
  SAYS(lasting::make_users(top, kUser, kUser).error().text, "belongs to user 20002");
  const std::string open = world.directory("open");
  cr_expect(::chmod(open.c_str(), 0777) == 0);
  SAYS(lasting::make_users(open, kUser, kUser).error().text, "not trusted");
  cr_expect(lasting::find_users(top + "/none", kUser).error().kind == ErrorKind::not_found);
}

}  // namespace
