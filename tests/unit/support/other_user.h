// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>

#include <functional>
#include <string>

namespace bellows {

// Two users of nobody's: only root can act as them.
constexpr uid_t kAlice = 64001;
constexpr uid_t kBob = 64002;

inline void become(uid_t user) {
  if (setgroups(0, nullptr) < 0 || setgid(user) < 0 || setuid(user) < 0) _exit(125);
}

/// Runs it in a process of that user; whether it says true.
inline bool holds_as(uid_t user, const std::function<bool()>& claim) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    become(user);
    _exit(claim() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// As long as it lives, a process of that user holds a lock of the file, as far as it can open it.
class ForeignLock {
 public:
  ForeignLock(uid_t user, const std::string& path, int lock) {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) < 0) abort();
    holder_ = fork();
    if (holder_ == 0) {
      alarm(120);
      become(user);
      const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      const char held = fd >= 0 && flock(fd, lock) == 0 ? 'y' : 'n';
      if (write(ready[1], &held, 1) == 1) pause();
      _exit(1);
    }
    char held = 'n';
    close(ready[1]);
    holds_ = read(ready[0], &held, 1) == 1 && held == 'y';
    close(ready[0]);
  }
  ForeignLock(const ForeignLock&) = delete;
  ForeignLock& operator=(const ForeignLock&) = delete;
  ~ForeignLock() {
    kill(holder_, SIGKILL);
    waitpid(holder_, nullptr, 0);
  }
  bool holds() const { return holds_; }
  pid_t process() const { return holder_; }

 private:
  pid_t holder_;
  bool holds_;
};

}  // namespace bellows
