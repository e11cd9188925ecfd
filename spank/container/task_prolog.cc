// SPDX-License-Identifier: Apache-2.0
#include "spank/container/task_prolog.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "common/fd.h"
#include "common/text.h"

namespace bellows::container {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostBytes = 65536;
constexpr std::string_view kSpaces = " \t\r\v\f";
constexpr int kPause = 20;  // milliseconds between two looks at the script

std::string_view trim_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text;
}

std::string_view trim_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

/// The script's process, killed with its group if it still runs at the end. A resource.
class Script {
 public:
  explicit Script(pid_t pid) : pid_(pid) {}
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;
  ~Script() {
    if (ended_) return;
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
  }

  bool ended() {
    if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }
  int status() const { return status_; }

 private:
  pid_t pid_;
  int status_ = 0;
  bool ended_ = false;
};

[[noreturn]] void start(const PrologRun& run, const std::function<Status()>& prepare, int output) {
  ::setpgid(0, 0);
  if (const Status status = prepare(); !status.ok()) {
    const std::string line = fmt::format("bellows: TaskProlog: {}\n", status.error().text);
    (void)write_all(STDERR_FILENO, line, "standard error");
    ::_exit(1);
  }
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::close_range(3, ~0U, 0);
  std::vector<char*> variables;
  for (const std::string& entry : run.environment)
    variables.push_back(const_cast<char*>(entry.c_str()));
  variables.push_back(nullptr);
  char* const words[] = {const_cast<char*>(run.path.c_str()), nullptr};
  ::execve(run.path.c_str(), words, variables.data());
  const Error error = errno_error("run", run.path);
  (void)write_all(STDERR_FILENO, "bellows: TaskProlog: " + error.text + "\n", "standard error");
  ::_exit(127);
}

/// Takes what there is; whether there may be more.
bool take(int pipe, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t n = ::read(pipe, buffer.data(), buffer.size());
  if (n > 0) text.append(buffer.data(), static_cast<std::size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

Error failed(const PrologRun& run, const std::string& how) {
  return Error{ErrorKind::unavailable, fmt::format("TaskProlog {} {}", run.path, how)};
}

/// Until its end: what it leaves running in the background may keep the pipe open.
Result<std::string> listen(const PrologRun& run, Script& script, int pipe) {
  const auto deadline = Clock::now() + std::chrono::seconds(run.seconds);
  std::string text;
  for (bool ended = false; !ended;) {
    pollfd wait{pipe, POLLIN, 0};
    ::poll(&wait, 1, kPause);
    ended = script.ended();
    while (text.size() <= kMostBytes && take(pipe, text)) {
    }
    if (text.size() > kMostBytes)
      return failed(run, fmt::format("wrote more than {} bytes", kMostBytes));
    if (!ended && Clock::now() >= deadline)
      return failed(run, fmt::format("did not end within {} s", run.seconds));
    // Its end of the pipe is closed: nothing to wait for but the end itself.
    if (!ended && (wait.revents & POLLHUP) != 0) ::poll(nullptr, 0, 1);
  }
  return text;
}

}  // namespace

std::vector<PrologLine> parse_prolog(std::string_view text) {
  std::vector<PrologLine> lines;
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with("print ")) {
      lines.push_back({PrologLine::Kind::print, "", std::string(trim_left(line.substr(6)))});
    } else if (line.starts_with("unset ")) {
      const auto name = trim_right(trim_left(line.substr(6)));
      if (!name.empty()) lines.push_back({PrologLine::Kind::unset, std::string(name), ""});
    } else if (line.starts_with("export ")) {
      const auto equals = line.find('=');
      if (equals == std::string_view::npos) continue;
      const auto name = trim_right(trim_left(line.substr(7, equals - 7)));
      if (!name.empty())
        lines.push_back(
            {PrologLine::Kind::set, std::string(name), std::string(line.substr(equals + 1))});
    }
  }
  return lines;
}

Result<std::string> run_prolog(const PrologRun& run, const std::function<Status()>& prepare) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno_error("make", "a pipe");
  const Fd from(ends[0]);
  Fd to(ends[1]);
  ::fcntl(to.get(), F_SETFL, 0);
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("start", run.path);
  if (pid == 0) start(run, prepare, to.get());
  ::setpgid(pid, pid);
  to.reset();
  Script script(pid);
  auto text = listen(run, script, from.get());
  if (!text) return text;
  if (WIFSIGNALED(script.status()))
    return failed(run, fmt::format("was killed by signal {}", WTERMSIG(script.status())));
  if (WEXITSTATUS(script.status()) != 0)
    return failed(run, fmt::format("failed with status {}", WEXITSTATUS(script.status())));
  return text;
}

}  // namespace bellows::container
