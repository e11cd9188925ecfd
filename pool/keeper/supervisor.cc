// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/supervisor.h"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "common/own_process.h"

namespace bellows::pool {
namespace {

constexpr int kFailed = 1;
/// A keeper that dies so often in a minute will go on dying: the job's own restart is next.
constexpr std::size_t kMostDeaths = 10;
constexpr std::chrono::minutes kDeathsIn{1};
constexpr timespec kLook{0, 200'000'000};
/// A helper that can't start is not started a hundred times a second.
constexpr std::chrono::milliseconds kHelperAgain{500};
constexpr std::chrono::seconds kHelpersEndWithin{3};
/// From a signal until all of them are killed.
constexpr int kStopLooks = 25;

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&set, number);
  return set;
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)), helpers_(options_.helpers.size()) {}

Supervisor::~Supervisor() {
  end_helpers();
  if (work_ <= 0) return;
  kill(work_, SIGKILL);
  while (waitpid(work_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool Supervisor::start_work() {
  const pid_t parent = getpid();
  work_ = fork();
  if (work_ < 0) options_.say(fmt::format("can't start a process: {}", std::strerror(errno)));
  if (work_ != 0) return work_ > 0;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have been killed before that.
  if (getppid() != parent) _exit(kFailed);
  sigset_t set = watched_signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  _exit(options_.work());
}

void Supervisor::start_helper(std::size_t number) {
  const Helper& helper = options_.helpers[number];
  helpers_[number].next = Clock::now() + kHelperAgain;
  auto child = Child::start({.command = helper.command,
                             .environment = own_environment(),
                             .in_fd = helper.in_fd,
                             .death_signal = SIGKILL});
  if (child) helpers_[number].child = std::move(*child);
  if (!child) options_.say(child.error().text);
}

void Supervisor::end_helpers() {
  const auto until = Clock::now() + kHelpersEndWithin;
  for (Running& running : helpers_)
    if (running.child) running.child->signal(SIGTERM);
  for (Running& running : helpers_)
    while (running.child && !running.child->poll_exit() && Clock::now() < until) usleep(10'000);
  helpers_.clear();
}

bool Supervisor::too_many_deaths() {
  const auto now = Clock::now();
  deaths_.push_back(now);
  std::erase_if(deaths_, [now](Clock::time_point death) { return now - death > kDeathsIn; });
  return deaths_.size() > kMostDeaths;
}

std::optional<int> Supervisor::look() {
  for (std::size_t i = 0; i < helpers_.size(); ++i) {
    std::optional<Child>& child = helpers_[i].child;
    if (child && child->poll_exit()) {
      options_.say(options_.helpers[i].name + " " + child->poll_exit()->to_string());
      child.reset();
    }
    if (!child && Clock::now() >= helpers_[i].next) start_helper(i);
  }
  int status = 0;
  const pid_t ended = waitpid(work_, &status, WNOHANG);
  if (ended != work_) return std::nullopt;
  work_ = -1;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  options_.say(fmt::format("the keeper was killed by signal {}", WTERMSIG(status)));
  if (too_many_deaths() || !start_work()) return kFailed;
  return std::nullopt;
}

int Supervisor::run() {
  const sigset_t set = watched_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  for (std::size_t i = 0; i < helpers_.size(); ++i) {
    start_helper(i);
    if (!helpers_[i].child) return kFailed;
  }
  if (!start_work()) return kFailed;
  int stopped = 0, looks = 0;
  for (;;) {
    const int signal = sigtimedwait(&set, nullptr, &kLook);
    if (const auto code = look()) return *code;
    if ((signal == SIGTERM || signal == SIGINT) && std::exchange(stopped, signal) == 0)
      kill(work_, signal);
    if (stopped != 0 && ++looks > kStopLooks) return 128 + stopped;
  }
}

}  // namespace bellows::pool
