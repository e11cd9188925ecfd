// SPDX-License-Identifier: Apache-2.0
// A node's views of jobs, and other processes on it.
#pragma once

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <string>

#include "spank/container/views.h"
#include "tests/unit/spank/container_rootfs_support.h"

namespace bellows::container {

inline constexpr std::uint32_t kJob = 7;
inline constexpr JobOwner kOwner{12345, 12346};

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
  ~Node() {
    ::umount2((run() + "/views").c_str(), MNT_DETACH);
    ::umount2((run() + "/" + std::to_string(kJob) + "/user").c_str(), MNT_DETACH);
  }

  const std::string& run() const { return scratch_.path(); }
  std::string jobs() const { return names_in(run() + "/views"); }
  Result<Lease> take(std::uint32_t job = kJob) const {
    ::mkdir((run() + "/" + std::to_string(job)).c_str(), 0755);
    return Lease::take(run(), job, kOwner);
  }
  Lease lease(std::uint32_t job = kJob) const {
    auto lease = take(job);
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
inline pid_t fork_mortal() {
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
  pid_t pid() const { return pid_; }
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
inline Fd young_namespace() {
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

inline bool has(const JobViews& views, const char* name) {
  const auto found = views.find(name);
  cr_assert(static_cast<bool>(found));
  return static_cast<bool>(*found);
}

}  // namespace bellows::container
