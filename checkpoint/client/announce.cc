// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/client/announce.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/client/socket.h"

namespace bellows::client {
namespace {

/// The agent is told by the same signal, and says so within the time of these looks.
constexpr itimerspec kLookSoon = {{0, 120'000'000}, {0, 120'000'000}};
constexpr int kLooks = 3;
/// Then whether the agent still lives, and whether the launcher has answered with a stop, for which
/// it has 4 s.
constexpr itimerspec kLookLater = {{0, 500'000'000}, {0, 500'000'000}};
constexpr int kLooksForStop = 8;
constexpr int kSignals[] = {SIGTERM, SIGUSR1};
constexpr int kCount = sizeof kSignals / sizeof *kSignals;

struct Listener {
  pid_t pid;
  std::atomic<const wire::Control*> page;
  std::atomic<int> socket;
  int timers[kCount];
  bool ours[kCount];
  std::atomic<int> looks[kCount];     ///< in vain
  std::atomic<int> no_stops[kCount];  ///< looks since the agent was told too
  bool tells_exit;
};
Listener listener;

int index_of(int number) { return number == kSignals[0] ? 0 : 1; }

// glibc's timer_create came to libc late; a container may have an older one.
bool make_timer(int number, int* timer) {
  struct sigevent event {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = number;
  return syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, timer) == 0;
}

void look(int timer, const itimerspec& when) {
  syscall(SYS_timer_settime, timer, 0, &when, nullptr);
}

void die_of(int number) {
  signal(number, SIG_DFL);
  raise(number);
}

void hold_or_die(int number, bool came_again) {
  const wire::Control* page = listener.page;
  const int i = index_of(number), socket = listener.socket;
  // A child that the program forked has no timer and no agent.
  if (getpid() != listener.pid || !page) return die_of(number);
  if (came_again) {
    listener.looks[i] = 0;
    listener.no_stops[i] = 0;
    return look(listener.timers[i], kLookSoon);
  }
  if (socket < 0 || hung_up(socket)) return die_of(number);
  if (page->announced.load()) {
    // srun signals all agents too when it takes their step down: then no stop follows.
    const bool stopping = page->gate.load() != wire::kNoStep || page->stop.load() != wire::kNoStep;
    if (!stopping && ++listener.no_stops[i] > kLooksForStop) return die_of(number);
    return look(listener.timers[i], kLookLater);
  }
  if (++listener.looks[i] >= kLooks) die_of(number);
}

void hold_back(int number, siginfo_t* info, void*) {
  const int before = errno;
  hold_or_die(number, info->si_code != SI_TIMER);
  errno = before;
}

// A program need not leave its agent before it ends. One that was killed, or failed, must not look
// the same: the command that the rank was started with may hide its status.
void tell_exit(int status, void*) {
  const int socket = listener.socket;
  if (status != 0 || getpid() != listener.pid || !listener.page || socket < 0) return;
  wire::Head head;
  head.op = wire::Op::bye;
  head.value = wire::Bye::exits;
  send_message(socket, head, nullptr, 0, nullptr, 0);
}

}  // namespace

void survive_announcements(const wire::Control* page, int socket) {
  if (listener.page) return;
  listener.pid = getpid();
  listener.socket = socket;
  listener.page = page;
  if (!listener.tells_exit) listener.tells_exit = on_exit(tell_exit, nullptr) == 0;
  struct sigaction hold {};
  hold.sa_sigaction = hold_back;
  hold.sa_flags = SA_RESTART | SA_SIGINFO;
  for (int i = 0; i < kCount; ++i) {
    struct sigaction now {};
    const bool free = sigaction(kSignals[i], nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
                      now.sa_handler == SIG_DFL;
    listener.ours[i] = free && make_timer(kSignals[i], &listener.timers[i]);
    if (listener.ours[i]) sigaction(kSignals[i], &hold, nullptr);
  }
}

void obey_announcements(const wire::Control* page) {
  if (!page || listener.page != page || getpid() != listener.pid) return;
  for (int i = 0; i < kCount; ++i) {
    if (!listener.ours[i]) continue;
    // First, or its last signal would end the process.
    syscall(SYS_timer_delete, listener.timers[i]);
    struct sigaction now {};
    sigaction(kSignals[i], nullptr, &now);
    if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == hold_back) signal(kSignals[i], SIG_DFL);
  }
  listener.page = nullptr;
}

void forget_agent(const wire::Control* page) {
  if (page && listener.page == page) listener.socket = -1;
}

}  // namespace bellows::client
