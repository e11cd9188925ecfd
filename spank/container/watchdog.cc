// SPDX-License-Identifier: Apache-2.0
#include "spank/container/watchdog.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

namespace bellows::container {
namespace {

constexpr int kPipe = 3;

/// In the watching process, which shares the maker's memory as it was: a literal's address is
/// enough to name a phase.
[[noreturn]] void watch(int pipe, int maker, std::uint32_t seconds) {
  // The maker's locks are held by every copy of their descriptors.
  if (pipe != kPipe) ::dup2(pipe, kPipe);
  const int own_maker = ::fcntl(maker, F_DUPFD_CLOEXEC, kPipe + 1);
  ::syscall(SYS_close_range, static_cast<unsigned>(own_maker + 1), ~0U, 0U);
  for (int fd = kPipe + 1; fd < own_maker; ++fd) ::close(fd);
  const char* phase = "";
  while (true) {
    pollfd readable{kPipe, POLLIN, 0};
    const int ready = ::poll(&readable, 1, static_cast<int>(seconds) * 1000);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) break;
    if (::read(kPipe, &phase, sizeof phase) != static_cast<ssize_t>(sizeof phase)) ::_exit(0);
  }
  ::dprintf(STDERR_FILENO,
            "slurmstepd: error: bellows: container: %s took longer than %u s, so the task was "
            "ended; see whether the file system it needs answers\n",
            phase, seconds);
  ::syscall(SYS_pidfd_send_signal, own_maker, SIGKILL, nullptr, 0U);
  ::_exit(1);
}

}  // namespace

Result<Watchdog> Watchdog::start(std::uint32_t seconds) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("make a pipe for", "the watchdog");
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const Fd maker(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0U)));
  if (!maker) return errno_error("open", "the own process");
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("fork", "the watchdog");
  if (pid == 0) {
    write_end.reset();
    watch(read_end.get(), maker.get(), seconds);
  }
  return Watchdog(std::move(write_end), pid);
}

Watchdog::Watchdog(Watchdog&& other) noexcept
    : pipe_(std::move(other.pipe_)), pid_(std::exchange(other.pid_, -1)) {}

Watchdog::~Watchdog() {
  pipe_.reset();
  // The program that runs next must not find a child that it did not start.
  while (pid_ > 0 && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Watchdog::begin(const char* name) {
  // A watchdog that is gone is no reason to fail.
  [[maybe_unused]] const ssize_t n = ::write(pipe_.get(), &name, sizeof name);
}

}  // namespace bellows::container
