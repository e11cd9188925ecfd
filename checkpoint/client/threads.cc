// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/client/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "common/plain/symbols.h"

namespace bellows::client {
namespace {

constexpr int kMostHelpers = 7;

struct Work {
  void (*call)(void*);
  void* argument;
};

void* run(void* work) {
  const auto* w = static_cast<const Work*>(work);
  w->call(w->argument);
  return nullptr;
}

/// Not by name: glibc 2.34 gave these a new version, and containers carry older ones.
struct Threads {
  int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) = nullptr;
  int (*join)(pthread_t, void**) = nullptr;

  Threads() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)  // they must see threads begin
    create = pthread_create;
    join = pthread_join;
#else
    const char* const names[] = {"pthread_create", "pthread_join"};
    void* found[2] = {};
    if (!plain::find_loaded("libpthread.so", names, 2, found) &&
        !plain::find_loaded("libc.so", names, 2, found))
      return;
    create = reinterpret_cast<decltype(create)>(found[0]);
    join = reinterpret_cast<decltype(join)>(found[1]);
#endif
  }
};

}  // namespace

int processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void run_side_by_side(void (*work)(void*), void* argument, int helpers) {
  Work shared = {work, argument};
  pthread_t threads[kMostHelpers];
  int begun = 0;
  if (helpers > kMostHelpers) helpers = kMostHelpers;
  const Threads library = helpers > 0 ? Threads() : Threads{};
  if (library.create) {
    // The program's signals are for its own threads.
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    while (begun < helpers && library.create(&threads[begun], nullptr, run, &shared) == 0) ++begun;
    sigprocmask(SIG_SETMASK, &before, nullptr);
  }
  work(argument);
  for (int i = 0; i < begun; ++i) library.join(threads[i], nullptr);
}

}  // namespace bellows::client
