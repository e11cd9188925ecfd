// SPDX-License-Identifier: Apache-2.0
// Directories of containers that outlive their jobs: one job at a time, one image, and a hostile
// owner.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/lasting/lasting.h"
#include "common/lasting/upkeep.h"
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

/// What `work` says of two containers: t, which job 7 uses, and old, last used a day ago.
std::string upkept(const std::function<std::string(int users, const std::string& path)>& work) {
  const World world;
  const std::string top = world.directory("containers");
  world.file("outside", "text");
  return run_as_user(
      [&] {
        cr_assert(lasting::make_users(top, kUser, kUser).ok());
        world.give("outside");
      },
      [&]() -> std::string {
        const auto users = lasting::find_users(top, kUser);
        if (!users) return users.error().text;
        const std::string path = fmt::format("{}/{}", top, kUser);
        const auto used = lasting::use(users->get(), "t", kImage, 7);
        if (!used || !lasting::use(users->get(), "old", kImage, 6)) return "not made";
        ::mkdir((path + "/old/upper").c_str(), 0700);
        std::ofstream(path + "/old/upper/file") << std::string(100000, 'x');
        (void)!::symlink(world.path("outside").c_str(), (path + "/old/upper/link").c_str());
        ::mkdir((path + "/old/upper/closed").c_str(), 0700);
        write(path + "/old/upper/closed/file");
        ::chmod((path + "/old/upper/closed").c_str(), 0);
        const timespec day[2] = {{std::time(nullptr) - 86400, 0}, {std::time(nullptr) - 86400, 0}};
        ::utimensat(AT_FDCWD, (path + "/old/lock").c_str(), day, 0);
        const std::string said = work(users->get(), path);
        return said + (::access(world.path("outside").c_str(), F_OK) == 0 ? "" : "; outside gone");
      });
}

Test(lasting, containers_are_listed) {
  NEEDS_ROOT();
  EQUALS(upkept([](int users, const std::string& path) -> std::string {
           (void)!::symlink("t", (path + "/link").c_str());
           const auto all = lasting::list(users);
           if (!all) return all.error().text;
           std::string text;
           for (const auto& each : *all)
             text += fmt::format("{} {} {} {}; ", each.name, each.image, each.bytes >= 100000,
                                 each.in_use ? each.job.value_or(0) : 0);
           return text + fmt::format("{}", lasting::bytes_of_all(users) >= 100000);
         }),
         "old /images/a b.sqsh true 0; t /images/a b.sqsh false 7; true");
}

Test(lasting, only_what_no_job_uses_is_removed) {
  NEEDS_ROOT();
  EQUALS(upkept([](int users, const std::string& path) -> std::string {
           const auto busy = lasting::remove(users, "t");
           const auto gone = lasting::remove(users, "old");
           const auto none = lasting::remove(users, "old");
           const auto bad = lasting::remove(users, "../t");
           if (!gone) return gone.error().text;
           return fmt::format("{} {} {}; {}", busy.error().kind == ErrorKind::busy,
                              none.error().kind == ErrorKind::not_found,
                              bad.error().kind == ErrorKind::invalid, names_in(path));
         }),
         "true true true; t");
}

Test(lasting, old_ones_are_removed) {
  NEEDS_ROOT();
  EQUALS(upkept([](int users, const std::string& path) -> std::string {
           const std::int64_t now = std::time(nullptr);
           const auto none = lasting::remove_older(users, now - 100000);
           ::mkdir((path + "/.gone-x-1").c_str(), 0700);
           const auto all = lasting::remove_older(users, now + 100);
           if (!none || !all) return "not removed";
           return fmt::format("{} {}: {}; {}", none->size(), all->size(), all->at(0),
                              names_in(path));
         }),
         "0 1: old; t");
}

Test(lasting, a_users_first_tasks_begin_at_once) {
  NEEDS_ROOT();
  const ScratchDir scratch;
  ::chmod(scratch.path().c_str(), 0755);
  for (int round = 0; round < 40; ++round) {
    const std::string top = fmt::format("{}/{}", scratch.path(), round);
    std::vector<pid_t> tasks;
    for (int i = 0; i < 8; ++i) {
      tasks.push_back(::fork());
      if (tasks.back() == 0) ::_exit(lasting::make_users(top, kUser, kUser).ok() ? 0 : 1);
    }
    for (const pid_t task : tasks) {
      int status = 1;
      ::waitpid(task, &status, 0);
      cr_expect_eq(status, 0);
    }
    EQUALS(names_in(top), std::to_string(kUser));
  }
}

}  // namespace
