// SPDX-License-Identifier: Apache-2.0
#include "common/child.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace bellows {
namespace {

struct Pipe {
  Fd read;
  Fd write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_error("make", "a pipe");
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Runs between fork and exec: only calls that are safe there.
[[noreturn]] void become(char** argv, char** envp, int in, int out, int err, int report,
                         int death_signal, pid_t parent) {
  setpgid(0, 0);
  if (death_signal != 0) prctl(PR_SET_PDEATHSIG, death_signal);
  if (getppid() != parent) _exit(127);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number : {SIGPIPE, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD})
    signal(number, SIG_DFL);
  if (dup2(in, 0) < 0 || (out >= 0 && dup2(out, 1) < 0) || (err >= 0 && dup2(err, 2) < 0))
    _exit(127);
  execvpe(argv[0], argv, envp);
  int error = errno;
  [[maybe_unused]] ssize_t wrote = write(report, &error, sizeof error);
  _exit(127);
}

void set_nonblocking(const Fd& fd) {
  if (fd) fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

}  // namespace

bool ChildExit::ok() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

int ChildExit::code() const {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string ChildExit::to_string() const {
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  return fmt::format("exited with status {}", WEXITSTATUS(status));
}

Result<Child> Child::start(const ChildOptions& options) {
  auto in = make_pipe();
  auto out = make_pipe();
  auto err = make_pipe();
  auto report = make_pipe();
  auto null = open_file("/dev/null", O_RDONLY);
  for (const auto* pipe : {&in, &out, &err, &report})
    if (!pipe->ok()) return pipe->error();
  if (!null) return null.error();

  std::vector<std::string> command = options.command;
  std::vector<std::string> environment = options.environment;
  auto argv = pointers(command);
  auto envp = pointers(environment);
  const int given = options.in_fd >= 0 ? options.in_fd : null->get();
  int child_in = options.pipe_in ? in->read.get() : given;
  int child_out = options.pipe_out ? out->write.get() : -1;
  int child_err = options.pipe_err ? err->write.get() : -1;
  pid_t parent = getpid();
  pid_t pid = fork();
  if (pid < 0) return errno_error("start", options.command.front());
  if (pid == 0)
    become(argv.data(), envp.data(), child_in, child_out, child_err, report->write.get(),
           options.death_signal, parent);
  setpgid(pid, pid);

  report->write.reset();
  int error = 0;
  ssize_t got;
  do {
    got = read(report->read.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  Child child(pid, options.pipe_in ? std::move(in->write) : Fd(),
              options.pipe_out ? std::move(out->read) : Fd(),
              options.pipe_err ? std::move(err->read) : Fd());
  if (got == sizeof error) {
    errno = error;
    return errno_error("run", options.command.front());
  }
  set_nonblocking(child.in_);
  set_nonblocking(child.out_);
  set_nonblocking(child.err_);
  return child;
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      in_(std::move(other.in_)),
      out_(std::move(other.out_)),
      err_(std::move(other.err_)),
      exit_(std::exchange(other.exit_, std::nullopt)) {}

Child& Child::operator=(Child&& other) noexcept {
  if (this == &other) return *this;
  finish();
  pid_ = std::exchange(other.pid_, -1);
  in_ = std::move(other.in_);
  out_ = std::move(other.out_);
  err_ = std::move(other.err_);
  exit_ = std::exchange(other.exit_, std::nullopt);
  return *this;
}

Child::~Child() { finish(); }

void Child::finish() {
  if (pid_ <= 0 || exit_) return;
  signal(SIGKILL);
  int status;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

const std::optional<ChildExit>& Child::poll_exit() {
  int status = 0;
  if (!exit_ && pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) exit_ = ChildExit{status};
  return exit_;
}

void Child::signal(int number) {
  if (pid_ > 0 && !exit_) kill(-pid_, number);
}

}  // namespace bellows
