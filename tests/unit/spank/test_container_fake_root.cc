// SPDX-License-Identifier: Apache-2.0
/// What the root of a container may do (--container-remap-root).

#include <criterion/criterion.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/fd.h"
#include "spank/container/fake_root.h"
#include "spank/container/idmap.h"
#include "spank/container/own_namespaces.h"
#include "tests/unit/spank/container_rootfs_support.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(fake_root, .timeout = 60);

std::string told(int result) { return result == 0 ? "yes" : std::strerror(errno); }

std::string told(const Status& status) { return status.ok() ? "yes" : status.error().text; }

std::string lines_of_status(const std::string& word) {
  std::string found;
  const std::string text = text_of("/proc/self/status");
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const auto value = text.find('\t', at) + 1;
    found += (found.empty() ? "" : " ") + text.substr(value, text.find('\n', at) - value);
  }
  return found;
}

/// A directory "covered" with a file that a mount hides, and an empty one, "place".
struct Mounts : World {
  Mounts() {
    file("covered/secret", "secret");
    give(directory("place").substr(path("").size()));
    file("mine", "mine");
    give("mine");
  }

  /// What `as_root` returns as a task that has become root.
  std::string ask(bool capable, const std::function<std::string()>& inside) const {
    Fd user;
    return run_as_user(
        [&] {
          (void)::mount("none", path("covered").c_str(), "tmpfs", MS_RDONLY, nullptr);
          if (auto made = root_is(kUser, kUser)) user = *std::move(made);
        },
        [&]() -> std::string {
          const auto status = enter_user_namespace(user, capable, false, true);
          return status.ok() ? inside() : status.error().text;
        });
  }
};

Test(fake_root, changes_of_owner_only_seem_to_succeed) {
  NEEDS_ROOT();
  const Mounts world;
  const std::string mine = world.path("mine");
  for (const bool capable : {true, false})
    EQUALS(world.ask(capable,
                     [&] {
                       const gid_t groups[] = {1, 2};
                       const Fd fd(::open(mine.c_str(), O_RDONLY | O_CLOEXEC));
                       std::string said = told(::chown(mine.c_str(), 42, 42));
                       said += told(::lchown(mine.c_str(), 42, 42));
                       said += told(::fchown(fd.get(), 42, 42));
                       said += told(::fchownat(AT_FDCWD, mine.c_str(), 42, 42, 0));
                       said += told(::setgroups(2, groups)) + told(::setresuid(42, 42, 42));
                       said += told(::setresgid(42, 42, 42)) + told(::setuid(42));
                       said += told(::setgid(42)) + told(::setreuid(42, 42));
                       said += told(::setregid(42, 42)) + told(::setfsuid(42));
                       struct stat info {};
                       (void)::stat(mine.c_str(), &info);
                       return said + std::to_string(::getuid() + ::getgid() + info.st_uid) +
                              std::to_string(::setfsuid(static_cast<uid_t>(-1))) + " " +
                              lines_of_status("Seccomp:");
                     }),
           "yesyesyesyesyesyesyesyesyesyesyesyes00 2");
}

Test(fake_root, mounts_but_uncovers_nothing) {
  NEEDS_ROOT();
  const Mounts world;
  const std::string covered = world.path("covered");
  const std::string place = world.path("place");
  EQUALS(
      world.ask(
          true,
          [&] {
            std::string said = told(::mount("none", place.c_str(), "tmpfs", 0, nullptr));
            said += opens(place + "/new", O_WRONLY | O_CREAT);
            said += told(::umount2(place.c_str(), 0)) + "; ";
            said += told(::umount2(covered.c_str(), MNT_DETACH)) + "; ";
            said += told(::mount(nullptr, covered.c_str(), nullptr, MS_REMOUNT | MS_BIND, nullptr));
            said += "; ";
            said += told(::mount(world.path("").c_str(), place.c_str(), nullptr, MS_BIND, nullptr));
            said += "; ";
            return said + told(::mknod((place + "/null").c_str(), S_IFCHR | 0666, makedev(1, 3)));
          }),
      "yesyesyes; Invalid argument; Operation not permitted; Invalid argument; "
      "Operation not permitted");
}

Test(fake_root, has_no_more_than_it_needs) {
  NEEDS_ROOT();
  const Mounts world;
  // Inheritable, permitted, effective, bounding and ambient.
  EQUALS(world.ask(true, [] { return lines_of_status("Cap"); }),
         "0000000000000000 00000000802401fb 00000000802401fb 00000000802401fb 0000000000000000");
  EQUALS(world.ask(false,
                   [&] {
                     return lines_of_status("Cap") + " " +
                            told(::mount("none", world.path("place").c_str(), "tmpfs", 0, nullptr));
                   }),
         "0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 "
         "Operation not permitted");
}

Test(fake_root, has_none_where_users_may_make_no_namespaces) {
  const World world;
  const auto asked = [&world](const char* name, const char* text) {
    world.file(std::string("proc/sys/kernel/") + name, text);
    const auto answer = users_have_namespaces(world.path(""));
    return answer && *answer;
  };
  cr_expect(asked("hostname", "n1\n"));
  cr_expect(asked("unprivileged_userns_clone", "1\n"));
  cr_expect(asked("apparmor_restrict_unprivileged_userns", "0\n"));
  cr_expect(!asked("unprivileged_userns_clone", "0\n"));
  cr_expect(asked("unprivileged_userns_clone", "1\n"));
  cr_expect(!asked("apparmor_restrict_unprivileged_userns", "1\n"));
}

Test(fake_root, changes_a_host_name_of_its_own) {
  NEEDS_ROOT();
  char before[256] = "";
  char after[256] = "";
  (void)::gethostname(before, sizeof before);
  for (const bool own : {true, false}) {
    Fd user;
    const auto said = run_as_user(
        [&] {
          if (auto made = root_is(kUser, kUser)) user = *std::move(made);
          Spec spec;
          spec.unshare_uts = own;
          if (!leave_for_own(spec, user).ok()) user.reset();
        },
        [&]() -> std::string {
          if (const auto status = enter_user_namespace(user, true, false, true); !status.ok())
            return told(status);
          return told(::sethostname("other", 5));
        });
    EQUALS(said, own ? "yes" : "Operation not permitted");
  }
  (void)::gethostname(after, sizeof after);
  cr_expect_str_eq(before, after);
}

}  // namespace
