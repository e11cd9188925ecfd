// SPDX-License-Identifier: Apache-2.0
/* A learner of bellows-ps that proves that each of its gradients was applied once: each is 1 in an
 * element of its own, so that all weights are -1 in the end. A journal beside it tells a later life
 * of the learner, and the check, what was pushed.
 *
 *     ps_ledger DIRECTORY COUNT [--pause MICROSECONDS] [--kill LEARNER NUMBER]
 *         [--mortal LEARNER NUMBER] [--fail LEARNER] [--again NUMBER]
 *         [--apart NUMBER] [--exec LEARNER NUMBER]
 *
 * --kill: the learner is killed right after it has pushed its gradient of this number, in its first
 * life. --mortal: in each life, after so many gradients. --fail: it always ends with 3 before it
 * joins. --again: once it has joined, so many times more, which must be refused. --apart: the same,
 * from processes in groups of their own. --exec: after so many gradients in its first life, and
 * once there is a file DIRECTORY/go, the learner becomes another program, which is this one again;
 * before that it does what --again says once more. Learner 0 waits for the others and checks.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cluster/programs/ps_program.h"

enum { kMostDoubts = 64, kTensors = 2, kWaitSeconds = 120, kWrong = 1, kUsage = 2, kFails = 3 };

struct journal {
  atomic_uint lives;
  atomic_uint begun; /* gradients whose push has begun */
  atomic_uint done;  /* gradients whose push has returned */
  atomic_uint doubts;
  atomic_uint doubt[kMostDoubts]; /* those that a kill may have hit before or after the push */
  atomic_uint finished;
};

struct task {
  const char* directory;
  uint32_t count;
  uint32_t learner;
  uint32_t learners;
  long pause_us;
  uint32_t kill_at; /* 0: never */
  uint32_t mortal;  /* 0: no */
  uint32_t again;   /* how often it tries to join once more */
  uint32_t apart;   /* how often others do that */
  uint32_t exec_at; /* 0: never */
  char** arguments;
};

static struct journal* open_journal(const struct task* task, uint32_t learner) {
  char path[4096];
  snprintf(path, sizeof path, "%s/ledger-%u", task->directory, learner);
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(struct journal)) != 0) die(path, "cannot be opened");
  void* const memory =
      mmap(NULL, sizeof(struct journal), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) die(path, "cannot be mapped");
  close(fd);
  return memory;
}

static int try_join(const struct task* task, bellows_ps_t** ps) {
  const uint64_t elements = (uint64_t)task->learners * task->count;
  const uint64_t counts[kTensors] = {elements, elements};
  return try_join_with(counts, kTensors, ps);
}

static bellows_ps_t* join(const struct task* task) {
  bellows_ps_t* ps = NULL;
  if (try_join(task, &ps) != BELLOWS_PS_OK) die_of(ps, "join");
  return ps;
}

static void join_again(const struct task* task) {
  bellows_ps_t* ps = NULL;
  for (uint32_t i = 0; i < task->again; ++i) {
    if (try_join(task, &ps) == BELLOWS_PS_OK) die("join", "it has joined twice");
    if (i == 0) printf("a second time: %s\n", bellows_ps_error(ps));
    bellows_ps_leave(ps);
  }
}

static void join_apart(const struct task* task) {
  for (uint32_t i = 0; i < task->apart; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);
      bellows_ps_t* ps = NULL;
      if (try_join(task, &ps) == BELLOWS_PS_OK) _exit(1);
      dprintf(STDOUT_FILENO, "from another group: %s\n", bellows_ps_error(ps));
      _exit(0);
    }
    int status = 1;
    if (waitpid(child, &status, 0) != child || status != 0) die("join", "its child has joined");
  }
}

static void become_another(const struct task* task) {
  char path[4096];
  snprintf(path, sizeof path, "%s/go", task->directory);
  for (int i = 0; access(path, F_OK) != 0; ++i) {
    if (i >= kWaitSeconds * 100) die(path, "does not come");
    pause_for(10000);
  }
  join_again(task);
  execv("/proc/self/exe", task->arguments);
  die("exec", "is not possible");
}

static void push(bellows_ps_t* ps, const struct task* task, struct journal* journal,
                 uint32_t number) {
  const size_t elements = (size_t)task->learners * task->count;
  if (bellows_ps_pull(ps) != BELLOWS_PS_OK || bellows_ps_begin(ps) != BELLOWS_PS_OK)
    die("begin", bellows_ps_error(ps));
  for (size_t t = 0; t < kTensors; ++t) {
    float* const gradient = bellows_ps_gradient(ps, t);
    memset(gradient, 0, elements * sizeof *gradient);
    gradient[(size_t)task->learner * task->count + number] = 1;
  }
  atomic_store(&journal->begun, number + 1);
  if (bellows_ps_push(ps, 1) != BELLOWS_PS_OK) die("push", bellows_ps_error(ps));
  if (number + 1 == task->kill_at && atomic_load(&journal->lives) == 1) raise(SIGKILL);
  atomic_store(&journal->done, number + 1);
}

static bool in_doubt(struct journal* journal, uint32_t number) {
  for (uint32_t i = 0; i < atomic_load(&journal->doubts); ++i)
    if (atomic_load(&journal->doubt[i]) == number + 1) return true;
  return false;
}

static int check(bellows_ps_t* ps, const struct task* task) {
  unsigned wrong = 0, doubts = 0, lives = 0;
  if (bellows_ps_pull(ps) != BELLOWS_PS_OK) die("pull", bellows_ps_error(ps));
  for (uint32_t l = 0; l < task->learners; ++l) {
    struct journal* const journal = open_journal(task, l);
    lives += atomic_load(&journal->lives);
    doubts += atomic_load(&journal->doubts);
    for (uint32_t n = 0; n < task->count; ++n) {
      const size_t at = (size_t)l * task->count + n;
      const float one = bellows_ps_weights(ps, 0)[at];
      const float other = bellows_ps_weights(ps, 1)[at];
      const bool once = one == -1.0F || (one == 0.0F && in_doubt(journal, n));
      if (once && one == other) continue;
      if (wrong++ < 8)
        printf("ledger: gradient %u of learner %u was applied %g and %g times\n", n, l,
               (double)-one, (double)-other);
    }
  }
  printf("ledger %s: %u learners in %u lives, %u gradients, %u in doubt\n",
         wrong == 0 ? "exact" : "wrong", task->learners, lives, task->learners * task->count,
         doubts);
  return wrong == 0 ? 0 : kWrong;
}

static void wait_for_others(const struct task* task) {
  for (uint32_t l = 0; l < task->learners; ++l) {
    struct journal* const journal = open_journal(task, l);
    for (int i = 0; !atomic_load(&journal->finished); ++i) {
      if (i >= kWaitSeconds * 100) die("wait", "another learner does not finish");
      pause_for(10000);
    }
  }
}

static int train(const struct task* task) {
  struct journal* const journal = open_journal(task, task->learner);
  const unsigned life = atomic_fetch_add(&journal->lives, 1) + 1;
  const uint32_t begun = atomic_load(&journal->begun);
  if (begun != atomic_load(&journal->done)) {
    const unsigned doubts = atomic_fetch_add(&journal->doubts, 1);
    if (doubts >= kMostDoubts) die("journal", "too many kills");
    atomic_store(&journal->doubt[doubts], begun);
    atomic_store(&journal->done, begun);
  }
  const char* const device = getenv("CUDA_VISIBLE_DEVICES");
  printf("learner %u of %u, life %u, device %s\n", task->learner, task->learners, life,
         device ? device : "none");
  fflush(stdout);
  bellows_ps_t* const ps = join(task);
  join_again(task);
  join_apart(task);
  for (uint32_t number = begun; number < task->count; ++number) {
    push(ps, task, journal, number);
    if (task->mortal > 0 && number + 1 - begun >= task->mortal) raise(SIGKILL);
    if (number + 1 == task->exec_at && life == 1) become_another(task);
    if (task->pause_us > 0) pause_for(task->pause_us);
  }
  if (bellows_ps_drain(ps) != BELLOWS_PS_OK) die("drain", bellows_ps_error(ps));
  atomic_store(&journal->finished, 1);
  int status = 0;
  if (task->learner == 0) {
    wait_for_others(task);
    status = check(ps, task);
  }
  bellows_ps_leave(ps);
  return status;
}

int main(int argc, char** argv) {
  if (argc < 3) return kUsage;
  struct task task = {argv[1], (uint32_t)strtoul(argv[2], NULL, 10), 0, 0, 0, 0, 0, 0, 0, 0, argv};
  task.learner = number_in("BELLOWS_PS_LEARNER");
  task.learners = number_in("BELLOWS_PS_LEARNERS");
  for (int i = 3; i + 1 < argc; i += 2) {
    const uint32_t value = (uint32_t)strtoul(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--pause") == 0) {
      task.pause_us = value;
    } else if (strcmp(argv[i], "--again") == 0) {
      task.again = value;
    } else if (strcmp(argv[i], "--apart") == 0) {
      task.apart = value;
    } else if (strcmp(argv[i], "--fail") == 0) {
      if (value == task.learner) return kFails;
    } else if (i + 2 < argc &&
               (strcmp(argv[i], "--kill") == 0 || strcmp(argv[i], "--mortal") == 0 ||
                strcmp(argv[i], "--exec") == 0)) {
      uint32_t* const at = argv[i][2] == 'k'   ? &task.kill_at
                           : argv[i][2] == 'm' ? &task.mortal
                                               : &task.exec_at;
      if (value == task.learner) *at = (uint32_t)strtoul(argv[i + 2], NULL, 10);
      ++i;
    } else {
      return kUsage;
    }
  }
  return train(&task);
}
