// SPDX-License-Identifier: Apache-2.0
#include "spank/container/watchdog.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

namespace bellows::container {
namespace {

constexpr int kSocket = 3;
constexpr int kWriteLimitMs = 1000;
constexpr int kEndLimitMs = 5000;

struct Begun {
  const char* phase;
  std::uint32_t seconds;  ///< 0: as for any phase
};

/// Where nobody reads any more, or what is read comes too slowly, the sentence is lost: the maker
/// must end all the same.
void tell(const char* phase, std::uint32_t seconds) {
  pollfd writable{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&writable, 1, kWriteLimitMs) != 1 || (writable.revents & POLLOUT) == 0) return;
  ::dprintf(STDERR_FILENO,
            "slurmstepd: error: bellows: container: %s took longer than %u s, so the task was "
            "ended; see whether the file system it needs answers\n",
            phase, seconds);
}

/// Not by SIGKILL while there is another way: srun drops what it has not read yet of a task's
/// output once it hears that a task ended by SIGKILL or SIGTERM, and the sentence with it. After
/// any other signal it reads on to the end. Where SIGALRM does as by default, who is stuck in a
/// system call that only a deadly signal ends is ended by it too.
void end(int maker) {
  ::syscall(SYS_pidfd_send_signal, maker, SIGALRM, nullptr, 0U);
  // Who is stopped takes no other signal.
  ::syscall(SYS_pidfd_send_signal, maker, SIGCONT, nullptr, 0U);
  pollfd ended{maker, POLLIN, 0};
  if (::poll(&ended, 1, kEndLimitMs) != 1)
    ::syscall(SYS_pidfd_send_signal, maker, SIGKILL, nullptr, 0U);
}

/// In the watching process, which shares the maker's memory as it was: a literal's address is
/// enough to name a phase.
[[noreturn]] void watch(int socket, int maker, std::uint32_t seconds) {
  ::signal(SIGPIPE, SIG_IGN);
  // The maker's locks are held by every copy of their descriptors.
  if (socket != kSocket) ::dup2(socket, kSocket);
  const int own_maker = ::fcntl(maker, F_DUPFD_CLOEXEC, kSocket + 1);
  ::syscall(SYS_close_range, static_cast<unsigned>(own_maker + 1), ~0U, 0U);
  for (int fd = kSocket + 1; fd < own_maker; ++fd) ::close(fd);
  Begun now{"", 0};
  while (true) {
    pollfd readable{kSocket, POLLIN, 0};
    const std::uint32_t limit = now.seconds > 0 ? now.seconds : seconds;
    const int ready = ::poll(&readable, 1, static_cast<int>(limit) * 1000);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) break;
    if (::read(kSocket, &now, sizeof now) != static_cast<ssize_t>(sizeof now)) ::_exit(0);
  }
  tell(now.phase, now.seconds > 0 ? now.seconds : seconds);
  end(own_maker);
  ::_exit(1);
}

}  // namespace

Result<Watchdog> Watchdog::start(std::uint32_t seconds) {
  int ends[2] = {-1, -1};
  // Not a pipe: a write into one that nobody reads would end the maker.
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return errno_error("make a socket for", "the watchdog");
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
    : socket_(std::move(other.socket_)), pid_(std::exchange(other.pid_, -1)) {}

Watchdog::~Watchdog() {
  socket_.reset();
  // The program that runs next must not find a child that it did not start.
  while (pid_ > 0 && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Watchdog::begin(const char* name, std::uint32_t seconds) {
  const Begun begun{name, seconds};
  // A watchdog that is gone is no reason to fail.
  ::send(socket_.get(), &begun, sizeof begun, MSG_NOSIGNAL);
}

}  // namespace bellows::container
