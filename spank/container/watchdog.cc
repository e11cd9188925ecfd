// SPDX-License-Identifier: Apache-2.0
#include "spank/container/watchdog.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <utility>

namespace bellows::container {
namespace {

constexpr int kSocket = 3;
constexpr int kMaker = 4;
constexpr int kWriteLimitMs = 1000;
constexpr int kEndLimitMs = 5000;

struct Begun {
  const char* phase;
  std::uint32_t seconds;  ///< 0: as for any phase
};

/// If nobody reads any more, or reads too slowly, the sentence is lost: the maker must end in any
/// case.
void tell(const char* phase, std::uint32_t seconds) {
  pollfd writable{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&writable, 1, kWriteLimitMs) != 1 || (writable.revents & POLLOUT) == 0) return;
  char text[512];
  const int length = std::snprintf(
      text, sizeof text,
      "slurmstepd: error: bellows: container: %s took longer than %u s, so the task was ended; see "
      "whether the file system it needs answers\n",
      phase, seconds);
  (void)!::write(STDERR_FILENO, text, std::min<std::size_t>(length, sizeof text - 1));
}

/// Not by SIGKILL while there is another way: srun drops what it has not read yet of a task's
/// output once it learns that a task ended by SIGKILL or SIGTERM, and the sentence with it. After
/// any other signal it reads on to the end. Where SIGALRM does as by default, who is stuck in a
/// system call that only a deadly signal ends is ended by it too.
void end() {
  ::syscall(SYS_pidfd_send_signal, kMaker, SIGALRM, nullptr, 0U);
  // A stopped process takes no other signal.
  ::syscall(SYS_pidfd_send_signal, kMaker, SIGCONT, nullptr, 0U);
  pollfd ended{kMaker, POLLIN, 0};
  if (::poll(&ended, 1, kEndLimitMs) != 1)
    ::syscall(SYS_pidfd_send_signal, kMaker, SIGKILL, nullptr, 0U);
}

/// Not among the numbers that the watching process gives its own: a copy of another end that stayed
/// open there would keep it from seeing that its maker is done.
Result<Fd> above(Fd fd) {
  if (!fd) return errno_error("open what is needed for", "the watchdog");
  Fd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kMaker + 1));
  if (!moved) return errno_error("open what is needed for", "the watchdog");
  return moved;
}

/// With all signals blocked, in it alone. A handler that it inherits would run in the memory that
/// it shares, and a call that a signal ends would set an errno that its maker may read.
pid_t start_process(int (*watch)(void*), void* stack, void* told) {
  // The C library leaves out two that it uses itself, and for which it has a handler.
  const std::uint64_t all = ~std::uint64_t{0};
  std::uint64_t before = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
  const pid_t pid = ::clone(watch, stack, CLONE_VM | SIGCHLD, told);
  const int error = errno;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
  errno = error;
  return pid;
}

}  // namespace

/// The watching process, which runs in the maker's memory: a fork would copy the page tables of
/// slurmstepd with all its plugins, and make the maker fault each page that it writes to later;
/// that took half of a joiner's time. So nothing here may allocate, take a lock, or write to what
/// is the maker's. errno is the same for both: it is not read here, and no call here fails before
/// the maker's time is over or it is gone. The memory is closed to the user's other processes, as
/// keep_only_needed() left it, while this process has the capabilities that the maker gave up.
int Watchdog::watch(void* told) {
  const Told& start = *static_cast<const Told*>(told);
  ::dup2(start.socket, kSocket);
  ::dup2(start.maker, kMaker);
  // The maker's locks are held by every copy of their descriptors.
  ::syscall(SYS_close_range, static_cast<unsigned>(kMaker + 1), ~0U, 0U);
  Begun now{"", 0};
  while (true) {
    pollfd readable{kSocket, POLLIN, 0};
    const std::uint32_t limit = now.seconds > 0 ? now.seconds : start.seconds;
    const int ready = ::poll(&readable, 1, static_cast<int>(limit) * 1000);
    if (ready < 0) continue;
    if (ready == 0) break;
    if (::read(kSocket, &now, sizeof now) != static_cast<ssize_t>(sizeof now)) return 0;
  }
  tell(now.phase, now.seconds > 0 ? now.seconds : start.seconds);
  end();
  return 1;
}

Result<Watchdog> Watchdog::start(std::uint32_t seconds) {
  int ends[2] = {-1, -1};
  // Not a pipe: a write into one that nobody reads would end the maker.
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return errno_error("make a socket for", "the watchdog");
  Fd one_end(ends[0]);
  Fd other_end(ends[1]);
  const auto read_end = above(std::move(one_end));
  auto write_end = above(std::move(other_end));
  const auto maker = above(Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0U))));
  for (const auto* fd : {&read_end, &std::as_const(write_end), &maker})
    if (!*fd) return fd->error();
  auto told = std::make_unique_for_overwrite<Told>();
  told->socket = read_end->get();
  told->maker = maker->get();
  told->seconds = seconds;
  const pid_t pid = start_process(watch, told->stack.data() + told->stack.size(), told.get());
  if (pid < 0) return errno_error("start", "the watchdog");
  return Watchdog(std::move(told), *std::move(write_end), pid);
}

Watchdog::Watchdog(Watchdog&& other) noexcept
    : told_(std::move(other.told_)),
      socket_(std::move(other.socket_)),
      pid_(std::exchange(other.pid_, -1)) {}

Watchdog::~Watchdog() {
  socket_.reset();
  // The program that runs next must not find a child that it did not start.
  while (pid_ > 0 && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Watchdog::begin(const char* name, std::uint32_t seconds) {
  const Begun begun{name, seconds};
  // A watchdog that is gone is not a reason to fail.
  ::send(socket_.get(), &begun, sizeof begun, MSG_NOSIGNAL);
}

}  // namespace bellows::container
