// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/client_announce.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/client_socket.h"

namespace bellows::client {
namespace {

/// What the agent needs at most to be told by the same signal and to say so.
constexpr long kLookEveryNs = 300'000'000;
constexpr int kSignals[] = {SIGTERM, SIGUSR1};
constexpr int kCount = sizeof kSignals / sizeof *kSignals;

struct Listener {
  pid_t pid;
  const wire::Control* page;
  int socket;
  int timers[kCount];
  bool ours[kCount];
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

void look_every(int timer, long ns) {
  const struct itimerspec when = {{0, ns}, {0, ns}};
  syscall(SYS_timer_settime, timer, 0, &when, nullptr);
}

void die_of(int number) {
  signal(number, SIG_DFL);
  raise(number);
}

void hold_back(int number, siginfo_t* info, void*) {
  const Listener& now = listener;
  // A child that the program forked has no timer and no agent.
  if (getpid() != now.pid || !now.page) return die_of(number);
  if (info->si_code != SI_TIMER) return look_every(now.timers[index_of(number)], kLookEveryNs);
  if (!now.page->announced.load() || hung_up(now.socket)) die_of(number);
}

}  // namespace

void survive_announcements(const wire::Control* page, int socket) {
  if (listener.page) return;
  listener.pid = getpid();
  listener.page = page;
  listener.socket = socket;
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

void heed_announcements(const wire::Control* page) {
  if (!page || listener.page != page || getpid() != listener.pid) return;
  for (int i = 0; i < kCount; ++i) {
    if (!listener.ours[i]) continue;
    struct sigaction now {};
    sigaction(kSignals[i], nullptr, &now);
    if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == hold_back) signal(kSignals[i], SIG_DFL);
    syscall(SYS_timer_delete, listener.timers[i]);
  }
  listener.page = nullptr;
}

}  // namespace bellows::client
