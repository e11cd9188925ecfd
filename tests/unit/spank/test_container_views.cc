// SPDX-License-Identifier: Apache-2.0
// The lives and deaths of a job's views.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "spank/container/container_name.h"
#include "spank/container/own_namespaces.h"
#include "spank/container/views.h"
#include "tests/unit/spank/views_support.h"

using namespace bellows;
using namespace bellows::container;
using namespace std::chrono_literals;

namespace {

TestSuite(views, .timeout = 60);

[[noreturn]] void fail_child(const char* what, const Error& error) {
  ::dprintf(STDERR_FILENO, "%s: %s\n", what, error.text.c_str());
  ::_exit(1);
}

Test(views, last_lease_removes_them) {
  NEEDS_ROOT();
  const Node node;
  auto first = node.lease();
  auto second = node.lease();
  const auto views = node.views();
  const Fd ns = young_namespace();
  cr_expect(views.pin("base", ns.get()).ok());
  cr_expect(first.leave().ok());
  EQUALS(node.jobs(), "7");
  cr_expect(has(views, "base"));
  cr_expect(second.leave().ok());
  EQUALS(node.jobs(), "");
}

// setresuid of another thread is every thread's, as glibc has it.
Test(views, are_removed_although_another_thread_takes_on_the_user_for_a_moment) {
  NEEDS_ROOT();
  const Node node;
  auto lease = node.lease();
  cr_assert_eq(::setresuid(-1, kOwner.uid, 0), 0);
  std::thread x11([] {
    std::this_thread::sleep_for(100ms);
    ::setresuid(-1, 0, 0);
  });
  const auto left = lease.leave();
  x11.join();
  cr_expect(left.ok(), "%s", left.ok() ? "" : left.error().text.c_str());
  EQUALS(node.jobs(), "");
}

Test(views, a_plain_job_has_a_lease_without_a_directory) {
  NEEDS_ROOT();
  const Node node;
  const Fd file(::open((node.run() + "/7").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  cr_assert(static_cast<bool>(file));
  auto lease = node.lease();
  EQUALS(node.jobs(), "7");
  cr_expect(node.views().pin("named-a", young_namespace().get()).ok());
  cr_expect(lease.leave().ok());
  EQUALS(node.jobs(), "");
}

Test(views, pinned_is_found_by_its_name) {
  NEEDS_ROOT();
  const Node node;
  auto lease = node.lease();
  const auto views = node.views();
  cr_expect(!has(views, "base"));
  const Fd ns = young_namespace();
  const auto pinned = views.pin("base", ns.get());
  cr_expect(pinned.ok(), "%s", pinned.ok() ? "" : pinned.error().text.c_str());
  cr_expect(!has(views, "other"));
  const auto found = views.find("base");
  cr_assert(found && *found);
  struct stat wanted {};
  struct stat got {};
  cr_assert(::fstat(ns.get(), &wanted) == 0 && ::fstat(found->get(), &got) == 0);
  cr_expect_eq(got.st_ino, wanted.st_ino);
  cr_expect(lease.leave().ok());
}

Test(views, mounts_on_mounts_go_too) {
  NEEDS_ROOT();
  const Node node;
  auto lease = node.lease();
  const auto views = node.views();
  for (const char* name : {"base", "other"}) {
    cr_expect(views.pin(name, young_namespace().get()).ok());
    const std::string again = node.run() + "/views/7/ns/" + name;
    cr_assert_eq(::mount("/proc/self/ns/uts", again.c_str(), nullptr, MS_BIND, nullptr), 0);
  }
  cr_expect(views.unpin("other").ok());
  cr_expect(!has(views, "other"));
  cr_expect(lease.leave().ok());
  EQUALS(node.jobs(), "");
}

Test(views, a_steps_own_containers_end_with_it) {
  NEEDS_ROOT();
  const Node node;
  auto lease = node.lease();
  const auto views = node.views();
  const Other alive([] {});
  Other dead([] {});
  const std::string gone = "step-" + std::to_string(dead.pid());
  dead.kill();
  const std::string other = "step-" + std::to_string(alive.pid());
  const std::string own = "step-" + std::to_string(::getpid());
  for (const std::string& name : {own, gone, other, std::string("named-step-1")}) {
    cr_assert(views.pin(name, young_namespace().get()).ok());
    cr_assert(views.write_note(name + ":own", "1").ok());
  }
  cr_expect(forget_own_containers(node.run(), kJob, ::getpid()).ok());
  auto names = views.names();
  cr_assert(static_cast<bool>(names));
  std::sort(names->begin(), names->end());
  cr_expect(*names ==
            (std::vector<std::string>{"named-step-1", "named-step-1:own", other, other + ":own"}));
  cr_expect(lease.leave().ok());
  EQUALS(node.jobs(), "");
}

Test(views, who_runs_in_a_container_with_a_name) {
  NEEDS_ROOT();
  const Node node;
  auto lease = node.lease();
  const auto views = node.views();
  Other other([] {});
  const auto used = [&](const char* name, pid_t stepd) {
    const auto answer = is_used(views, name, stepd);
    return answer.ok() && *answer;
  };
  cr_expect(!used("named-a", 1));
  for (int task = 0; task < 2; ++task) cr_expect(note_use(views, "named-a", other.pid()).ok());
  cr_expect(used("named-a", 1) && !used("named-b", 1));
  cr_expect(!used("named-a", other.pid()), "a step is not the other one");
  const std::string note = "step-" + std::to_string(other.pid()) + ":in";
  cr_assert(views.write_note(note, "1 named-a").ok());
  cr_expect(!used("named-a", 1), "another process has the number of its slurmstepd");
  cr_assert(note_use(views, "named-a", other.pid()).ok() && used("named-a", 1));
  const pid_t gone = other.pid();
  other.kill();
  cr_expect(!used("named-a", 1), "its slurmstepd was killed");
  cr_expect(note_use(views, "named-a", ::getpid()).ok() && used("named-a", 1));
  cr_expect(forget_own_containers(node.run(), kJob, ::getpid()).ok());
  cr_expect(!used("named-a", 1));
  const auto left = views.read_note("step-" + std::to_string(gone) + ":in");
  cr_expect(left.ok() && left->empty());
  cr_expect(lease.leave().ok());
}

Test(views, steps_share_a_container_only_where_nobody_can_tell) {
  const ScratchDir scratch;
  const Site site;
  Spec spec;
  spec.image = scratch.path() + "/image";
  const Fd file(::open(spec.image.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  cr_assert(static_cast<bool>(file));
  const std::string shared = container_name(spec, site, 5);
  EQUALS(container_name(spec, site, 6), shared);
  EQUALS(container_name(spec, site, 6, "/home/ann"), shared);
  Spec home = spec;
  home.mount_home = true;
  cr_expect(container_name(home, site, 6, "/home/ann") != container_name(home, site, 6, "/tmp"));
  Site writable;
  writable.writable = true;
  EQUALS(container_name(spec, writable, 5), "step-5");
  Spec own = spec;
  own.remap_root = true;
  EQUALS(container_name(own, site, 5), "step-5");
  own = spec;
  own.save = "/x.sqsh";
  EQUALS(container_name(own, site, 5), "step-5");
  own = spec;
  own.unshare_ipc = true;
  EQUALS(container_name(own, site, 5), "step-5");
  own = spec;
  own.mounts.emplace_back();
  own.mounts.back().kind = Mount::Kind::tmpfs;
  own.mounts.back().target = "/t";
  EQUALS(container_name(own, site, 5), "step-5");
  own.name = "n";
  EQUALS(container_name(own, writable, 5), "named-n");
  const struct timespec other[2] = {{1000, 0}, {1000, 0}};
  cr_assert_eq(::utimensat(AT_FDCWD, spec.image.c_str(), other, 0), 0);
  cr_expect(container_name(spec, site, 5) != shared, "another image has the name of the old one");
}

Test(views, a_name_may_stand_for_a_step) {
  const auto meant = [](const char* name, NameMode mode = NameMode::automatic) {
    Spec spec;
    spec.name = name;
    spec.name_mode = mode;
    const auto step = step_meant(spec, kJob);
    return step ? std::to_string(*step) : std::string("none");
  };
  EQUALS(meant("7.3"), "3");
  EQUALS(meant("7.3", NameMode::exec), "3");
  EQUALS(meant("7.3", NameMode::create), "none");
  for (const char* name : {"t", "8.3", "22.04", "7", "7.", "7.x", "7.3.1", "7.99999999999"})
    EQUALS(meant(name), "none");
}

Test(views, a_steps_container_is_found_while_it_runs) {
  NEEDS_ROOT();
  const Node node;
  const Lease lease = node.lease();
  const JobViews views = node.views();
  cr_assert(note_step(views, "step-5", ::getpid(), 3).ok());
  cr_assert(note_step(views, "step-5", ::getpid(), 3).ok());
  const auto found = container_of_step(views, kJob, 3);
  cr_assert(found.ok());
  EQUALS(*found, "step-5");
  const std::string parents = "step-" + std::to_string(::getppid());
  cr_assert(views.write_note(parents + ":step", "1 5 " + parents).ok());
  cr_expect(!container_of_step(views, kJob, 5).ok(), "a number that another process has");
  const auto other = container_of_step(views, kJob, 30);
  cr_assert(!other.ok());
  EQUALS(other.error().text,
         "step 7.30 does not run in a container without a name on this node; name one that does, "
         "or give the container a name of another form");
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  cr_assert_eq(::waitpid(gone, nullptr, 0), gone);
  cr_assert(note_step(views, "step-6", gone, 4).ok());
  cr_expect(!container_of_step(views, kJob, 4).ok());
  cr_assert(forget_own_containers(node.run(), kJob, ::getpid()).ok());
  cr_expect(!container_of_step(views, kJob, 3).ok());
}

Test(views, names_of_all_that_is_kept) {
  NEEDS_ROOT();
  const Node node;
  auto lease = node.lease();
  const auto views = node.views();
  cr_expect(views.pin("named-a", young_namespace().get()).ok());
  cr_expect(views.write_note("named-a:note", "1").ok());
  for (int round = 0; round < 2; ++round) {
    auto names = views.names();
    cr_assert(static_cast<bool>(names));
    std::sort(names->begin(), names->end());
    cr_expect(*names == std::vector<std::string>({"named-a", "named-a:note"}));
  }
  cr_expect(lease.leave().ok());
}

Test(views, own_namespaces_of_a_dead_maker_are_forgotten) {
  NEEDS_ROOT();
  const Node node;
  auto lease = node.lease();
  const auto views = node.views();
  Spec dead;
  dead.name = "a";
  dead.unshare_uts = true;
  cr_expect(pin_own(views, "named-a", dead).ok());
  Spec next;
  next.name = "a";
  for (const std::size_t left : {1, 0}) {
    const auto found = find_own(views, "named-a", next);
    cr_assert(static_cast<bool>(found));
    cr_expect_eq(found->size(), left);
    cr_expect(pin_own(views, "named-a", next).ok());
  }
  cr_expect(lease.leave().ok());
}

Test(views, maker_that_died_before_the_mount) {
  NEEDS_ROOT();
  const Node node;
  auto lease = node.lease();
  const auto views = node.views();
  const Fd bare(::open((node.run() + "/views/7/ns/base").c_str(), O_CREAT | O_WRONLY, 0600));
  cr_assert(static_cast<bool>(bare));
  cr_expect(!has(views, "base"));
  const Fd ns = young_namespace();
  cr_expect(views.pin("base", ns.get()).ok());
  cr_expect(has(views, "base"));
  cr_expect(lease.leave().ok());
  EQUALS(node.jobs(), "");
}

Test(views, first_lease_removes_what_a_crash_left) {
  NEEDS_ROOT();
  const Node node;
  Other crashed([&node] {
    static auto lease = node.lease();
    const Fd ns = young_namespace();
    cr_assert(node.views().pin("base", ns.get()).ok());
  });
  {
    auto beside = node.lease();
    cr_expect(has(node.views(), "base"), "a lease beside one that lives removes nothing");
  }
  crashed.kill();
  EQUALS(node.jobs(), "7");
  auto next = node.lease();
  cr_expect(!has(node.views(), "base"));
  cr_expect(next.leave().ok());
  EQUALS(node.jobs(), "");
}

/// The user's directory of a job, mounted.
struct UsersDir {
  explicit UsersDir(const Node& node) : path(node.run() + "/7/user") {
    ::mkdir((node.run() + "/7").c_str(), 0755);
    cr_assert_eq(::mkdir(path.c_str(), 0700), 0);
  }
  struct stat look() const {
    struct stat info {};
    (void)::stat(path.c_str(), &info);
    return info;
  }
  bool mounted() const { return look().st_uid == kOwner.uid; }

  std::string path;
};

Test(views, the_users_directory_is_his_and_bounded) {
  NEEDS_ROOT();
  const Node node;
  const UsersDir user(node);
  auto first = node.lease();
  auto second = node.lease();
  cr_expect_eq(user.look().st_uid, 12345U);
  cr_expect_eq(user.look().st_gid, 12346U);
  cr_expect_eq(user.look().st_mode & 07777, 0700U);
  struct statfs size {};
  cr_assert_eq(::statfs(user.path.c_str(), &size), 0);
  cr_expect_eq(static_cast<std::uint64_t>(size.f_blocks) * static_cast<std::uint64_t>(size.f_bsize),
               16U << 20);
  cr_expect_eq(size.f_files, 4096U);
  cr_expect(first.leave().ok());
  cr_expect(user.mounted(), "as long as one lives");
  // What the user may have mounted there himself.
  const std::string inside = user.path + "/m";
  cr_assert_eq(::mkdir(inside.c_str(), 0755), 0);
  cr_assert_eq(::mount(nullptr, inside.c_str(), "tmpfs", 0, nullptr), 0);
  cr_expect(second.leave().ok());
  cr_expect(!user.mounted());
}

Test(views, the_users_directory_stays_in_no_view_of_others) {
  NEEDS_ROOT();
  const Node node;
  const UsersDir user(node);
  auto lease = node.lease();
  const Other view([] {
    cr_assert_eq(::unshare(CLONE_NEWNS), 0);
    cr_assert_eq(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  });
  const auto mounted = [&] {
    return text_of("/proc/" + std::to_string(view.pid()) + "/mountinfo").find(user.path) !=
           std::string::npos;
  };
  cr_assert(mounted());
  cr_expect(lease.leave().ok());
  cr_expect(!mounted());
  auto again = node.lease();
  cr_expect(user.mounted(), "a job may come back");
  cr_expect(again.leave().ok());
}

Test(views, what_lies_under_the_users_directory_hinders_nobody) {
  NEEDS_ROOT();
  const Node node;
  const UsersDir user(node);
  cr_assert_eq(::mkdir((user.path + "/under").c_str(), 0755), 0);
  auto lease = node.lease();
  cr_expect(user.mounted());
  cr_expect(lease.leave().ok());
  EQUALS(names_in(user.path), "under");
}

Test(views, what_a_crash_left_in_the_users_directory_goes) {
  NEEDS_ROOT();
  const Node node;
  const UsersDir user(node);
  Other crashed([&node, &user] {
    static auto lease = node.lease();
    cr_assert_eq(::mkdir((user.path + "/old").c_str(), 0755), 0);
  });
  crashed.kill();
  cr_expect(user.mounted());
  {
    auto next = node.lease();
    cr_expect(user.mounted());
    EQUALS(names_in(user.path), "");
    cr_expect(next.leave().ok());
    cr_expect(!user.mounted());
  }
  Other again([&node] { static auto lease = node.lease(); });
  again.kill();
  cr_expect(user.mounted());
  cr_expect(collect_views(node.run()).ok());
  cr_expect(!user.mounted());
}

Test(views, no_lease_without_the_users_directory) {
  NEEDS_ROOT();
  const Node node;
  const auto lease = Lease::take(node.run(), kJob, kOwner);
  cr_assert(!lease);
  cr_expect(lease.error().text.find("/7/user") != std::string::npos);
  EQUALS(node.jobs(), "");
}

Test(views, collecting_keeps_what_lives) {
  NEEDS_ROOT();
  const Node node;
  auto lives = node.lease(1);
  const auto views = node.views(1);
  const Fd ns = young_namespace();
  cr_assert(views.pin("base", ns.get()).ok());
  Other crashed([&node] {
    static auto lease = node.lease(2);
    cr_assert(node.views(2).pin("base", young_namespace().get()).ok());
  });
  crashed.kill();
  EQUALS(node.jobs(), "1 2");
  cr_expect(collect_views(node.run()).ok());
  EQUALS(node.jobs(), "1");
  cr_expect(has(views, "base"));
  cr_expect(lives.leave().ok());
  EQUALS(node.jobs(), "");
}

/// As the prolog of another job does while one begins on a node where a crash left something of it.
Test(views, collecting_while_leases_begin) {
  NEEDS_ROOT();
  const Node node;
  const UsersDir user(node);
  const pid_t collector = fork_mortal();
  while (collector == 0)
    if (const auto status = collect_views(node.run()); !status.ok())
      fail_child("collect", status.error());
  for (int round = 0; round < 400; ++round) {
    const pid_t crashed = fork_mortal();
    if (crashed == 0) {
      const auto lease = node.take();
      ::_exit(lease && ::mkdir((user.path + "/left").c_str(), 0700) == 0 ? 0 : 1);
    }
    int left = 0;
    ::waitpid(crashed, &left, 0);
    cr_assert_eq(left, 0);
    auto lease = node.lease();
    cr_assert(user.mounted(), "round %d", round);
    EQUALS(names_in(user.path), "");
    cr_assert(lease.leave().ok());
  }
  ::kill(collector, SIGKILL);
  int status = 0;
  ::waitpid(collector, &status, 0);
  cr_expect(WIFSIGNALED(status), "collecting failed");
}

Test(views, lease_without_room_leaves_nothing) {
  NEEDS_ROOT();
  const Node node;
  cr_expect(node.lease(1).leave().ok());
  const std::string views = node.run() + "/views";
  // The root and one directory, and no file in it.
  cr_assert_eq(::mount(nullptr, views.c_str(), nullptr, MS_REMOUNT, "nr_inodes=2"), 0);
  const auto lease = node.take();
  cr_assert(!lease);
  cr_expect(lease.error().text.find("No space left") != std::string::npos);
  EQUALS(node.jobs(), "");
}

/// RUN_DIR is open to all, and so to anybody's lock.
Test(views, a_users_lock_stops_nobody) {
  NEEDS_ROOT();
  const Node node;
  cr_assert_eq(::chmod(node.run().c_str(), 0755), 0);
  Other user([&node] {
    static Fd lock(::open(node.run().c_str(), O_RDONLY | O_CLOEXEC));
    cr_assert_eq(::flock(lock.get(), LOCK_SH), 0);
  });
  Other comes([&node] { cr_assert(node.lease().leave().ok()); });
}

Test(views, two_that_come_first_mount_once) {
  NEEDS_ROOT();
  const Node node;
  const std::string views = node.run() + "/views";
  cr_assert_eq(::mkdir(views.c_str(), 0700), 0);
  Fd below(::open(views.c_str(), O_RDONLY | O_CLOEXEC));
  cr_assert_eq(::flock(below.get(), LOCK_EX), 0);
  std::thread slow([&below] {
    std::this_thread::sleep_for(200ms);
    below.reset();
  });
  const auto began = std::chrono::steady_clock::now();
  auto lease = node.lease();
  cr_expect(std::chrono::steady_clock::now() - began >= 100ms);
  slow.join();
  cr_expect(lease.leave().ok());
}

Test(views, directories_of_others_are_not_taken) {
  NEEDS_ROOT();
  const Node node;
  const auto refused = [&node](const char* why) {
    const auto lease = node.take();
    cr_assert(!lease, "%s", why);
    cr_expect_eq(lease.error().kind, ErrorKind::denied, "%s", lease.error().text.c_str());
  };
  cr_expect(node.lease().leave().ok());
  const std::string views = node.run() + "/views";
  for (const std::string& path : {node.run(), views}) {
    for (const mode_t mode : {0720U, 0702U}) {
      cr_assert_eq(::chmod(path.c_str(), mode), 0);
      refused("writable");
    }
    cr_assert_eq(::chmod(path.c_str(), 0700), 0);
    cr_assert_eq(::chown(path.c_str(), 12345, 0), 0);
    refused("another's");
    cr_assert_eq(::chown(path.c_str(), 0, 0), 0);
  }
  cr_expect(node.lease().leave().ok());
  cr_assert_eq(::umount2(views.c_str(), MNT_DETACH), 0);
  cr_assert_eq(::mount("/proc", views.c_str(), nullptr, MS_BIND, nullptr), 0);
  refused("no tmpfs");
}

/// Many come and go at once, as at the end of one step and the beginning of the next: each finds
/// the views that it has a lease of.
Test(views, leases_at_once) {
  NEEDS_ROOT();
  const Node node;
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    children.push_back(fork_mortal());
    if (children.back() != 0) continue;
    for (int round = 0; round < 200; ++round) {
      auto lease = node.take();
      if (!lease) fail_child("take", lease.error());
      const auto views = JobViews::open(node.run(), kJob);
      if (!views) fail_child("open", views.error());
      if (const auto status = lease->leave(); !status.ok()) fail_child("leave", status.error());
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    cr_expect_eq(status, 0);
  }
  EQUALS(node.jobs(), "");
}

Test(views, lock_is_one_tasks) {
  NEEDS_ROOT();
  const Node node;
  auto lease = node.lease();
  const auto mine = node.views();
  const auto others = node.views();
  {
    const auto lock = mine.lock(1s);
    cr_expect(static_cast<bool>(lock));
    const auto second = others.lock(50ms);
    cr_assert(!second);
    cr_expect_eq(second.error().kind, ErrorKind::unavailable);
    cr_expect(second.error().text.find("still locked after 50 ms") != std::string::npos);
  }
  cr_expect(static_cast<bool>(others.lock(50ms)));
  cr_expect(lease.leave().ok());
}

Test(views, lock_ends_with_its_killed_holder) {
  NEEDS_ROOT();
  const Node node;
  auto lease = node.lease();
  const auto mine = node.views();
  Other holder([&node] {
    static const auto views = node.views();
    static auto lock = views.lock(1s);
    cr_assert(static_cast<bool>(lock));
  });
  cr_expect(!mine.lock(50ms));
  std::thread killer([&holder] {
    std::this_thread::sleep_for(100ms);
    holder.kill();
  });
  cr_expect(static_cast<bool>(mine.lock(10s)));
  killer.join();
  cr_expect(lease.leave().ok());
}

}  // namespace
