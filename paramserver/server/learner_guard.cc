// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/learner_guard.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "paramserver/server/socket_place.h"

namespace bellows::ps {
namespace {

[[noreturn]] void guard(const Fd& parent, const LearnerBoard& board, const LearnerRun& run,
                        const std::string& socket, const std::string& directory) {
  // What ends the parent in good order is its business, and a kill of its group must not end this.
  setpgid(0, 0);
  prctl(PR_SET_NAME, "ps-guard");
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  pollfd ended = {parent.get(), POLLIN, 0};
  while (poll(&ended, 1, -1) < 1) {
  }
  for (std::uint32_t l = 0; l < kMostLearners; ++l)
    if (const pid_t group = board[l].group; group > 0) kill(-group, SIGKILL);
  run.kill_all(LearnerRun::kAtEnd);
  SocketPlace::remove(socket, board.socket());
  if (!directory.empty()) rmdir(directory.c_str());
  _exit(0);
}

}  // namespace

Result<LearnerGuard> LearnerGuard::start(const LearnerBoard& board, const LearnerRun& run,
                                         const std::string& socket, const std::string& directory) {
  const Fd parent(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!parent) return errno_error("watch", "bellows-ps itself");
  const pid_t pid = fork();
  if (pid < 0) return errno_error("make", "a process");
  if (pid == 0) guard(parent, board, run, socket, directory);
  return LearnerGuard(pid);
}

LearnerGuard::LearnerGuard(LearnerGuard&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

LearnerGuard::~LearnerGuard() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace bellows::ps
