// SPDX-License-Identifier: Apache-2.0
#include "spank/owner.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "common/fd.h"
#include "spank/container/capabilities.h"

namespace bellows::spank {
namespace {

[[noreturn]] void answer(container::JobOwner owner, pid_t parent, int to,
                         const std::function<int()>& call) noexcept {
  // Slurm ends the job meanwhile, and takes every child of slurmstepd for one of its tasks.
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  if (!become_owner(owner, {})) ::_exit(1);
  // A change of user would have undone it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != parent) ::_exit(1);
  try {
    const int value = call();
    ::_exit(::write(to, &value, sizeof value) == sizeof value ? 0 : 1);
  } catch (...) {
    ::_exit(1);
  }
}

/// Whether there is something to read, or nobody left to write it, before the limit.
bool wait_for(int fd, std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd readable{fd, POLLIN, 0};
    const int ready = ::poll(&readable, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

bool become_owner(container::JobOwner owner, const std::vector<gid_t>& groups) {
  return ::setgroups(groups.size(), groups.data()) == 0 &&
         ::setresgid(owner.gid, owner.gid, owner.gid) == 0 &&
         ::setresuid(owner.uid, owner.uid, owner.uid) == 0 && container::drop_all(true).ok() &&
         // The kernel sees to that at a change of user, unless fs.suid_dumpable says otherwise.
         ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}

Result<int> as_owner(container::JobOwner owner, std::chrono::seconds limit,
                     const std::function<int()>& call) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("make", "a pipe");
  const Fd from(ends[0]);
  Fd to(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return errno_error("start", "a process of the job's owner");
  if (child == 0) answer(owner, parent, to.get(), call);
  to.reset();
  int value = 0;
  const bool answered =
      wait_for(from.get(), limit) && ::read(from.get(), &value, sizeof value) == sizeof value;
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (answered) return value;
  return Error{ErrorKind::unavailable,
               fmt::format("the process of user {} that was to ask slurmctld ended, or did not "
                           "answer within {} s",
                           owner.uid, limit.count())};
}

}  // namespace bellows::spank
