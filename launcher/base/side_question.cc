// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/side_question.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace bellows {
namespace {

constexpr useconds_t kLookEvery = 1000;
constexpr int kMostLooks = 1000;

}  // namespace

void SideQuestion::ask(const std::function<std::string()>& find) {
  if (asking()) return;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  Fd in(ends[0]);
  Fd out(ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    _exit(write_all(out.get(), find(), "the launcher") ? 0 : 1);
  }
  pid_ = child;
  pipe_ = std::move(in);
  text_.clear();
}

std::optional<std::string> SideQuestion::take() {
  if (!asking()) return std::nullopt;
  char chunk[256];
  ssize_t got;
  while ((got = read(pipe_.get(), chunk, sizeof chunk)) > 0)
    text_.append(chunk, static_cast<std::size_t>(got));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  end();
  return text_;
}

void SideQuestion::end() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  // A child that waits for a hanging file system survives the signal, and nobody may wait for it.
  for (int i = 0; i < kMostLooks; ++i, usleep(kLookEvery)) {
    const pid_t ended = waitpid(pid_, nullptr, WNOHANG);
    if (ended == pid_ || (ended < 0 && errno != EINTR)) break;
  }
  pid_ = -1;
  pipe_.reset();
}

}  // namespace bellows
