// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/client/start.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace bellows::client {
namespace {

constexpr std::int64_t kPatienceMs = 30000;

std::int64_t now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * std::int64_t{1000} + t.tv_nsec / 1000000;
}

void pause_ms(long ms) {
  timespec t = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&t, nullptr);
}

// The rest of the site's choice is the agent's to keep.
mode_t mode_of_directories() {
  const char* contract = getenv("BELLOWS_CONTRACT");
  if (contract && strstr(contract, " access=all")) return 0755;
  return contract && strstr(contract, " access=group") ? 0750 : 0700;
}

// mkdir -p, and the absolute name: the agent runs elsewhere, and ranks must agree on one name.
int make_absolute(Place* place, ErrorText* error) {
  for (char* p = place->dir + 1; place->dir[0]; ++p) {
    char kept = *p;
    if (kept != '/' && kept != 0) continue;
    *p = 0;
    int rc = mkdir(place->dir, mode_of_directories());
    if (rc < 0 && errno != EEXIST && access(place->dir, X_OK) < 0) {
      return error->set(BELLOWS_ERR_IO, "cannot make the checkpoint directory %s: %s", place->dir,
                        strerror(errno));
    }
    *p = kept;
    if (kept == 0) break;
  }
  char real[PATH_MAX];
  if (!realpath(place->dir, real)) {
    return error->set(BELLOWS_ERR_IO, "cannot use the checkpoint directory %s: %s", place->dir,
                      strerror(errno));
  }
  memcpy(place->dir, real, strlen(real) + 1);
  return BELLOWS_OK;
}

// A directory only this user can enter: whoever can write there could pose as our agent.
int make_private(const char* path, ErrorText* error) {
  if (mkdir(path, 0700) < 0 && errno != EEXIST) {
    return error->set(BELLOWS_ERR_AGENT, "cannot make %s for the agent's socket: %s", path,
                      strerror(errno));
  }
  Handle dir(open(path, O_DIRECTORY | O_NOFOLLOW | O_RDONLY | O_CLOEXEC));
  // Not fstat: glibc gave it a new symbol in 2.33, and containers carry older ones.
  struct statx s;
  if (dir.get() < 0 || statx(dir.get(), "", AT_EMPTY_PATH, STATX_UID | STATX_MODE, &s) < 0 ||
      s.stx_uid != geteuid() || (s.stx_mode & 0077)) {
    return error->set(BELLOWS_ERR_AGENT,
                      "%s must be a directory of this user that no one else can enter; remove it",
                      path);
  }
  return BELLOWS_OK;
}

// One socket for each checkpoint directory, so that the ranks of one program share an agent.
int choose_socket(Place* place, ErrorText* error) {
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  char dir[80];
  if (runtime && *runtime == '/' && strlen(runtime) < 60 && access(runtime, W_OK) == 0) {
    snprintf(dir, sizeof dir, "%s/bellows", runtime);
  } else {
    snprintf(dir, sizeof dir, "/tmp/bellows-%u", static_cast<unsigned>(geteuid()));
  }
  int rc = make_private(dir, error);
  if (rc != BELLOWS_OK) return rc;
  const std::uint64_t hash = wire::hash_of(place->dir, strlen(place->dir));
  snprintf(place->socket, sizeof place->socket, "%s/%016llx", dir,
           static_cast<unsigned long long>(hash));
  return BELLOWS_OK;
}

// The rank that starts the agent may be bound to one CPU, and the agent works for all ranks. What
// the cgroup does not allow the kernel leaves out.
void use_all_cpus() {
  unsigned char all[1024];
  memset(all, 0xff, sizeof all);
  syscall(SYS_sched_setaffinity, 0, sizeof all, all);
}

// In the child: only calls that are safe after fork in a program with threads.
[[noreturn]] void become_agent(const char* const* argv, int ready) {
  setsid();
  if (fork() != 0) _exit(0);
  // A program may have closed what is set here: else it could be one of these itself.
  ready = fcntl(ready, F_DUPFD_CLOEXEC, 3);
  int null = open("/dev/null", O_RDONLY);
  dup2(null, 0);
  dup2(ready, 1);
  // The program's sockets and pipes must not stay open in a process that outlives it.
  if (syscall(SYS_close_range, 3u, ~0u, 0u) < 0) {
    for (int fd = 3; fd < 1024; ++fd) close(fd);
  }
  use_all_cpus();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const char* named = getenv("BELLOWS_AGENT");
  if (named && *named) {
    execv(named, const_cast<char* const*>(argv));
  } else {
    execvp("bellows", const_cast<char* const*>(argv));
    execv(BELLOWS_BINDIR "/bellows", const_cast<char* const*>(argv));
  }
  char text[256];
  int n = snprintf(text, sizeof text, "error cannot run %s: %s\n",
                   named && *named ? named : "bellows", strerror(errno));
  if (write(1, text, n) < 0) _exit(1);
  _exit(1);
}

// Reads the line the agent says when it serves, or why it cannot.
int await_ready(int fd, ErrorText* error) {
  char line[600];
  std::size_t used = 0;
  while (used < sizeof line - 1) {
    ssize_t got = read(fd, line + used, sizeof line - 1 - used);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    used += got;
    if (line[used - 1] == '\n') break;
  }
  while (used > 0 && line[used - 1] == '\n') --used;
  line[used] = 0;
  if (strcmp(line, "ready") == 0) return BELLOWS_OK;
  if (strncmp(line, "busy ", 5) == 0) return error->set(BELLOWS_ERR_BUSY, "%s", line + 5);
  const char* why = strncmp(line, "error ", 6) == 0 ? line + 6 : "it ended at once";
  return error->set(BELLOWS_ERR_AGENT,
                    "the agent did not start: %s (install bellows, or set BELLOWS_AGENT to it)",
                    why);
}

int start_agent(const Place& place, ErrorText* error) {
  char world[16], keep[16], keep_every[24];
  snprintf(world, sizeof world, "%d", place.world);
  snprintf(keep, sizeof keep, "%d", place.keep);
  snprintf(keep_every, sizeof keep_every, "%llu",
           static_cast<unsigned long long>(place.keep_every));
  const char* const argv[] = {"bellows", "agent",        "--standalone", "--socket", place.socket,
                              "--dir",   place.dir,      "--world",      world,      "--keep",
                              keep,      "--keep-every", keep_every,     nullptr};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) {
    return error->set(BELLOWS_ERR_AGENT, "cannot make a pipe: %s", strerror(errno));
  }
  Handle mine(ends[0]), theirs(ends[1]);
  pid_t child = fork();
  if (child < 0) {
    return error->set(BELLOWS_ERR_AGENT, "cannot start the agent: %s", strerror(errno));
  }
  if (child == 0) become_agent(argv, theirs.get());
  theirs.reset(-1);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return await_ready(mine.get(), error);
}

// Under a lock, so that of many ranks exactly one starts the agent.
int connect_or_start(const Place& place, Handle* socket, ErrorText* error) {
  char path[sizeof place.socket + 8];
  snprintf(path, sizeof path, "%s.lock", place.socket);
  Handle lock(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  int rc;
  do {
    rc = lock.get() < 0 ? -1 : flock(lock.get(), LOCK_EX);
  } while (rc < 0 && errno == EINTR);
  if (rc < 0) {
    return error->set(BELLOWS_ERR_AGENT, "cannot lock %s: %s", path, strerror(errno));
  }
  if (connect_to(place.socket, socket) == 0) return BELLOWS_OK;
  rc = start_agent(place, error);
  if (rc != BELLOWS_OK) return rc;
  int failure = connect_to(place.socket, socket);
  if (failure == 0) return BELLOWS_OK;
  return error->set(BELLOWS_ERR_AGENT, "cannot connect to the agent at %s: %s", place.socket,
                    strerror(failure));
}

// BELLOWS_OK, an error for good (*again false), or one that another agent may not have.
int say_hello(const Place& place, Handle* socket, Mapping* control, std::uint64_t* memory,
              bool* again, ErrorText* error) {
  wire::Head head;
  head.op = wire::Op::hello;
  wire::Hello hello = {place.rank, place.world};
  Message answer;
  *again = true;
  const char* belongs = place.in_job ? place.attempt : place.dir;
  int failure = send_message(socket->get(), head, &hello, sizeof hello, belongs, strlen(belongs));
  if (failure == 0) failure = receive_message(socket->get(), &answer);
  if (failure != 0) {
    *again = failure == EPIPE || failure == ECONNRESET;
    return error->set(BELLOWS_ERR_AGENT, "the agent at %s did not answer: %s", place.socket,
                      failure == EPROTO ? "it has another version" : strerror(failure));
  }
  if (answer.head.op == wire::Op::failed) {
    *again = answer.head.value == wire::Failure::try_again;
    return error->set(answer.head.code, "%s", answer.why());
  }
  *again = false;
  if (answer.head.op != wire::Op::welcome || answer.fd.get() < 0) {
    return error->set(BELLOWS_ERR_AGENT, "the agent at %s has another version", place.socket);
  }
  if (!control->map(answer.fd.get(), wire::kControlBytes, PROT_READ | PROT_WRITE)) {
    return error->set(BELLOWS_ERR_MEMORY, "cannot map the agent's page: %s", strerror(errno));
  }
  *memory = answer.head.value;
  return BELLOWS_OK;
}

int connect_once(const Place& place, Handle* socket, bool* again, ErrorText* error) {
  int failure = connect_to(place.socket, socket);
  *again = failure == ENOENT || failure == ECONNREFUSED || failure == EAGAIN;
  if (failure == 0) return BELLOWS_OK;
  if (!place.in_job && *again) {
    int rc = connect_or_start(place, socket, error);
    *again = rc == BELLOWS_ERR_BUSY;
    return rc;
  }
  return error->set(BELLOWS_ERR_AGENT, "cannot connect to the agent at %s: %s", place.socket,
                    strerror(failure));
}

}  // namespace

int join_agent(Place* place, Handle* socket, Mapping* control, std::uint64_t* memory,
               ErrorText* error) {
  if (!place->in_job) {
    int rc = make_absolute(place, error);
    if (rc == BELLOWS_OK) rc = choose_socket(place, error);
    if (rc != BELLOWS_OK) return rc;
  }
  std::int64_t deadline = now_ms() + kPatienceMs;
  for (;;) {
    bool again = false;
    int rc = connect_once(*place, socket, &again, error);
    if (rc == BELLOWS_OK) rc = say_hello(*place, socket, control, memory, &again, error);
    if (rc == BELLOWS_OK || !again || now_ms() > deadline) return rc;
    socket->reset(-1);
    pause_ms(20);
  }
}

}  // namespace bellows::client
