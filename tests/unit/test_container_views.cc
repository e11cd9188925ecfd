// SPDX-License-Identifier: Apache-2.0
// The lives and deaths of a job's views, and of the watchdog of those who build them.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "spank/container/own_namespaces.h"
#include "spank/container/views.h"
#include "spank/container/watchdog.h"
#include "tests/unit/container_rootfs_support.h"

using namespace bellows;
using namespace bellows::container;
using namespace std::chrono_literals;

namespace {

TestSuite(views, .timeout = 60);
TestSuite(watchdog, .timeout = 60);

constexpr std::uint32_t kJob = 7;

/// A run directory in a mount namespace of the test's own; each test is a process of its own.
class Node {
 public:
  Node() {
    // Linux 6.18 numbers namespaces in batches for each CPU, and pins only what has a higher
    // number.
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    cr_assert_eq(::sched_setaffinity(0, sizeof one, &one), 0);
    cr_assert_eq(::unshare(CLONE_NEWNS), 0);
    cr_assert_eq(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() { ::umount2((run() + "/views").c_str(), MNT_DETACH); }

  const std::string& run() const { return scratch_.path(); }
  std::string jobs() const { return names_in(run() + "/views"); }
  Lease lease(std::uint32_t job = kJob) const {
    auto lease = Lease::take(run(), job);
    cr_assert(static_cast<bool>(lease), "%s", lease ? "" : lease.error().text.c_str());
    return *std::move(lease);
  }
  JobViews views(std::uint32_t job = kJob) const {
    auto views = JobViews::open(run(), job);
    cr_assert(static_cast<bool>(views), "%s", views ? "" : views.error().text.c_str());
    return *std::move(views);
  }

 private:
  ScratchDir scratch_;
};

/// A child that does not outlive a test that fails, and then keep its output open for ever.
pid_t fork_mortal() {
  const pid_t pid = ::fork();
  if (pid == 0) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return pid;
}

/// Another process, in which `body` runs and which then waits to be killed.
class Other {
 public:
  explicit Other(const std::function<void()>& body) {
    int ends[2];
    cr_assert_eq(::pipe2(ends, O_CLOEXEC), 0);
    const Fd from(ends[0]);
    Fd to(ends[1]);
    pid_ = fork_mortal();
    if (pid_ == 0) {
      body();
      (void)!::write(to.get(), "x", 1);
      while (true) ::pause();
    }
    to.reset();
    char ready = 0;
    cr_assert_eq(::read(from.get(), &ready, 1), 1, "the other process failed");
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  ~Other() { kill(); }
  void kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    (void)wait();
  }
  int wait() {
    int status = 0;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
};

/// A mount namespace younger than the test's; nobody is in it.
Fd young_namespace() {
  int ends[2];
  cr_assert_eq(::pipe2(ends, O_CLOEXEC), 0);
  const Fd from(ends[0]);
  const Fd to(ends[1]);
  const pid_t child = fork_mortal();
  if (child == 0) {
    const bool left = ::unshare(CLONE_NEWNS) == 0;
    (void)!::write(to.get(), left ? "y" : "n", 1);
    while (true) ::pause();
  }
  char left = 0;
  cr_assert_eq(::read(from.get(), &left, 1), 1);
  Fd ns(::open(("/proc/" + std::to_string(child) + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  cr_assert(left == 'y' && ns);
  return ns;
}

bool has(const JobViews& views, const char* name) {
  const auto found = views.find(name);
  cr_assert(static_cast<bool>(found));
  return static_cast<bool>(*found);
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

Test(views, lease_without_room_leaves_nothing) {
  NEEDS_ROOT();
  const Node node;
  cr_expect(node.lease(1).leave().ok());
  const std::string views = node.run() + "/views";
  // The root and one directory, and no file in it.
  cr_assert_eq(::mount(nullptr, views.c_str(), nullptr, MS_REMOUNT, "nr_inodes=2"), 0);
  const auto lease = Lease::take(node.run(), kJob);
  cr_assert(!lease);
  cr_expect(lease.error().text.find("No space left") != std::string::npos);
  EQUALS(node.jobs(), "");
}

[[noreturn]] void fail_child(const char* what, const Error& error) {
  ::dprintf(STDERR_FILENO, "%s: %s\n", what, error.text.c_str());
  ::_exit(1);
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
      auto lease = Lease::take(node.run(), kJob);
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

/// What a child of the test says, which is stuck in a phase, and how it ended.
struct Stuck {
  std::string said;
  int status = 0;
};
Stuck be_stuck(const std::function<void(Watchdog&)>& phases) {
  int ends[2];
  cr_assert_eq(::pipe2(ends, O_CLOEXEC), 0);
  const Fd from(ends[0]);
  Fd to(ends[1]);
  const pid_t child = fork_mortal();
  if (child == 0) {
    ::dup2(to.get(), STDERR_FILENO);
    auto watchdog = Watchdog::start(1);
    if (!watchdog) ::_exit(2);
    phases(*watchdog);
    ::_exit(3);
  }
  to.reset();
  Stuck stuck;
  char buffer[512];
  for (ssize_t n = 0; (n = ::read(from.get(), buffer, sizeof buffer)) > 0;)
    stuck.said.append(buffer, static_cast<std::size_t>(n));
  ::waitpid(child, &stuck.status, 0);
  return stuck;
}

[[noreturn]] void stop() {
  ::raise(SIGSTOP);
  ::_exit(4);
}

Test(watchdog, kills_who_is_stuck_and_says_where) {
  const auto stuck = be_stuck([](Watchdog& watchdog) {
    watchdog.begin("opening");
    watchdog.begin("mounting");
    stop();
  });
  cr_expect(WIFSIGNALED(stuck.status) && WTERMSIG(stuck.status) == SIGKILL);
  cr_expect(stuck.said.find("container: mounting took longer than 1 s") != std::string::npos, "%s",
            stuck.said.c_str());
}

Test(watchdog, a_phase_may_have_a_limit_of_its_own) {
  const auto stuck = be_stuck([](Watchdog& watchdog) {
    watchdog.begin("waiting", 3);
    std::this_thread::sleep_for(1500ms);
    watchdog.begin("mounting");
    stop();
  });
  cr_expect(WIFSIGNALED(stuck.status) && WTERMSIG(stuck.status) == SIGKILL);
  cr_expect(stuck.said.find("container: mounting took longer than 1 s") != std::string::npos, "%s",
            stuck.said.c_str());
}

Test(watchdog, each_phase_has_its_own_time) {
  const auto stuck = be_stuck([](Watchdog& watchdog) {
    for (int phase = 0; phase < 4; ++phase) {
      watchdog.begin("working");
      std::this_thread::sleep_for(400ms);
    }
    ::_exit(0);
  });
  cr_expect_eq(stuck.status, 0);
  EQUALS(stuck.said, "");
}

/// slurmstepd is dead, and nobody has the other end of standard error any more.
Test(watchdog, kills_where_nobody_listens) {
  const auto stuck = be_stuck([](Watchdog& watchdog) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) ::_exit(5);
    ::dup2(ends[1], STDERR_FILENO);
    auto deaf = Watchdog::start(1);
    ::close(ends[0]);
    ::close(ends[1]);
    watchdog.begin("not this one");
    { const auto ended = std::move(watchdog); }
    deaf->begin("mounting");
    stop();
  });
  cr_expect(WIFSIGNALED(stuck.status) && WTERMSIG(stuck.status) == SIGKILL);
}

Test(watchdog, kills_where_nobody_reads) {
  const auto stuck = be_stuck([](Watchdog& watchdog) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) ::_exit(5);
    while (::write(ends[1], "full", 4) > 0) {
    }
    ::fcntl(ends[1], F_SETFL, 0);
    ::dup2(ends[1], STDERR_FILENO);
    { const auto ended = std::move(watchdog); }
    auto slow = Watchdog::start(1);
    slow->begin("mounting");
    stop();
  });
  cr_expect(WIFSIGNALED(stuck.status) && WTERMSIG(stuck.status) == SIGKILL);
}

Test(watchdog, that_is_gone_harms_nobody) {
  const auto stuck = be_stuck([](Watchdog& watchdog) {
    // It is the only child.
    const std::string children = "/proc/self/task/" + std::to_string(::getpid()) + "/children";
    const int pid = std::atoi(text_of(children).c_str());
    if (pid <= 0) ::_exit(5);
    ::kill(pid, SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
    watchdog.begin("going on");
    ::_exit(0);
  });
  cr_expect_eq(stuck.status, 0);
}

Test(watchdog, ends_with_its_maker) {
  const auto began = std::chrono::steady_clock::now();
  // be_stuck reads to the end, and the watchdog has the other end too.
  const auto stuck = be_stuck([](Watchdog& watchdog) {
    watchdog.begin("dying");
    ::kill(::getpid(), SIGKILL);
  });
  cr_expect(WIFSIGNALED(stuck.status));
  EQUALS(stuck.said, "");
  cr_expect(std::chrono::steady_clock::now() - began < 900ms);
}

}  // namespace
