// SPDX-License-Identifier: Apache-2.0
#include "spank/container/lock_holder.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "spank/container/capabilities.h"

namespace bellows::container {
namespace {

constexpr int kKept = 3;
constexpr int kHour = 3600 * 1000;

[[noreturn]] void hold(int lock) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "bellows-holder", 0, 0, 0);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (::setsid() < 0 || ::chdir("/") != 0 || null < 0 || !drop_all(true).ok() ||
      ::dup2(null, 0) < 0 || ::dup2(null, 1) < 0 || ::dup2(null, 2) < 0 ||
      (lock != kKept && ::dup2(lock, kKept) < 0) || ::close_range(kKept + 1, ~0U, 0) != 0)
    ::_exit(1);
  for (;;) {
    ::poll(nullptr, 0, kHour);
    (void)::futimens(kKept, nullptr);
  }
}

}  // namespace

Status hold_for_job(Fd lock, const JobCgroup& home) {
  if (!home)
    return Error{
        ErrorKind::unavailable,
        "a container that outlives its job needs the job's cgroup, and this node has none; "
        "the administrator may choose container_scope=job in plugstack.conf"};
  // By way of a child that ends at once: the program that the task becomes must not find a child
  // that it did not start.
  const pid_t between = ::fork();
  if (between == 0) {
    if (!home.enter()) ::_exit(1);
    const pid_t holder = ::fork();
    if (holder == 0) hold(lock.get());
    ::_exit(holder < 0 ? 1 : 0);
  }
  int status = 1;
  while (between > 0 && ::waitpid(between, &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return {};
  return Error{ErrorKind::unavailable,
               "cannot start what keeps the container for the job: no more processes"};
}

}  // namespace bellows::container
