// SPDX-License-Identifier: Apache-2.0
// The watchdog of those who build a view.
#include <poll.h>

#include <chrono>
#include <thread>

#include "spank/container/watchdog.h"
#include "tests/unit/spank/views_support.h"

using namespace bellows;
using namespace bellows::container;
using namespace std::chrono_literals;

namespace {

TestSuite(watchdog, .timeout = 60);

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

void expect_killed(const Stuck& stuck, int signal, const char* says) {
  cr_expect(WIFSIGNALED(stuck.status) && WTERMSIG(stuck.status) == signal);
  cr_expect(stuck.said.find(says) != std::string::npos, "%s", stuck.said.c_str());
}

Test(watchdog, kills_who_is_stuck_and_says_where) {
  const auto stuck = be_stuck([](Watchdog& watchdog) {
    watchdog.begin("opening");
    watchdog.begin("mounting");
    stop();
  });
  expect_killed(stuck, SIGALRM, "container: mounting took longer than 1 s");
}

/// Without a system call that could end early.
Test(watchdog, kills_who_works_too_long_so_that_srun_reads_on) {
  const auto stuck = be_stuck([](Watchdog& watchdog) {
    watchdog.begin("working");
    for (volatile bool working = true; working;) {
    }
  });
  // After SIGKILL or SIGTERM srun drops the sentence.
  expect_killed(stuck, SIGALRM, "container: working took longer");
}

Test(watchdog, kills_who_ignores_an_alarm) {
  const auto stuck = be_stuck([](Watchdog& watchdog) {
    ::signal(SIGALRM, SIG_IGN);
    watchdog.begin("mounting");
    std::this_thread::sleep_for(15s);
  });
  expect_killed(stuck, SIGKILL, "container: mounting took longer");
}

Test(watchdog, a_phase_may_have_a_limit_of_its_own) {
  const auto stuck = be_stuck([](Watchdog& watchdog) {
    watchdog.begin("waiting", 3);
    std::this_thread::sleep_for(1500ms);
    watchdog.begin("mounting");
    stop();
  });
  expect_killed(stuck, SIGALRM, "container: mounting took longer than 1 s");
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
  cr_expect(WIFSIGNALED(stuck.status) && WTERMSIG(stuck.status) == SIGALRM);
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
  cr_expect(WIFSIGNALED(stuck.status) && WTERMSIG(stuck.status) == SIGALRM);
}

/// A watchdog at work in a process without some of the first descriptors: those whose bit is set.
Watchdog start_without(unsigned closed, Watchdog& other) {
  { const auto ended = std::move(other); }
  for (int fd = 0; fd < 3; fd++)
    if ((closed >> fd & 1) != 0) ::close(fd);
  auto watchdog = Watchdog::start(1);
  if (!watchdog) ::_exit(5);
  watchdog->begin("working");
  return *std::move(watchdog);
}

/// A process may be started without some of the first descriptors.
Test(watchdog, ends_with_its_work_where_few_descriptors_are_open) {
  for (unsigned closed = 0; closed < 8; closed++) {
    const auto stuck = be_stuck([closed](Watchdog& other) {
      const auto began = std::chrono::steady_clock::now();
      { const auto watchdog = start_without(closed, other); }
      ::_exit(std::chrono::steady_clock::now() - began < 900ms ? 0 : 6);
    });
    cr_expect_eq(stuck.status, 0, "closed: %u, status: %x", closed, stuck.status);
    // And it still ends who is stuck.
    const auto late = be_stuck([closed](Watchdog& other) {
      const auto watchdog = start_without(closed, other);
      stop();
    });
    cr_expect(WIFSIGNALED(late.status) && WTERMSIG(late.status) == SIGALRM, "closed: %u", closed);
  }
}

/// The C library's own, which sigprocmask() leaves out and a program with threads has handlers for.
constexpr int kCancel = 32;
constexpr int kSetIds = 33;

/// What it inherits of handlers neither runs in it nor ends its time.
Test(watchdog, ignores_signals) {
  const auto stuck = be_stuck([](Watchdog& other) {
    { const auto ended = std::move(other); }
    static volatile sig_atomic_t handled;
    handled = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { handled = 1; };
    ::sigaction(SIGUSR1, &action, nullptr);
    std::thread([] {}).join();
    auto watchdog = Watchdog::start(1);
    const auto children = own_children();
    if (!watchdog || children.empty()) ::_exit(5);
    const pid_t pid = *children.begin();
    watchdog->begin("working");
    // An errno of the maker's own all the while, as if its calls failed.
    for (const auto began = std::chrono::steady_clock::now();
         std::chrono::steady_clock::now() - began < 15s;) {
      for (const int signal : {SIGUSR1, kCancel, kSetIds}) {
        errno = ENOENT;
        ::kill(pid, signal);
        std::this_thread::sleep_for(1ms);
        if (handled != 0) ::_exit(6);
        if (errno != ENOENT) ::_exit(7);
      }
    }
  });
  expect_killed(stuck, SIGALRM, "container: working took longer than 1 s");
}

Test(watchdog, that_is_gone_harms_nobody) {
  const auto stuck = be_stuck([](Watchdog& watchdog) {
    // It is the only child.
    const auto children = own_children();
    if (children.empty()) ::_exit(5);
    const pid_t pid = *children.begin();
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
