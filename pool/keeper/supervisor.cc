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

namespace bellows::pool {
namespace {

constexpr int kFailed = 1;
/// A keeper that dies so often in a minute will go on dying: the job's own restart is next.
constexpr std::size_t kMostDeaths = 10;
constexpr std::chrono::minutes kDeathsIn{1};
constexpr timespec kLook{0, 200'000'000};
/// A proxy that can't start is not started a hundred times a second.
constexpr std::chrono::milliseconds kProxyAgain{500};
/// From a signal until all of them are killed.
constexpr int kStopLooks = 25;

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&set, number);
  return set;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  return environment;
}

}  // namespace

Supervisor::~Supervisor() {
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

bool Supervisor::start_proxy() {
  if (options_.proxy.empty()) return true;
  proxy_at_ = Clock::now() + kProxyAgain;
  auto proxy = Child::start({.command = options_.proxy,
                             .environment = own_environment(),
                             .in_fd = options_.proxy_in,
                             .death_signal = SIGKILL});
  if (proxy) proxy_ = std::move(*proxy);
  if (!proxy) options_.say(proxy.error().text);
  return proxy.ok();
}

bool Supervisor::too_many_deaths() {
  const auto now = Clock::now();
  deaths_.push_back(now);
  std::erase_if(deaths_, [now](Clock::time_point death) { return now - death > kDeathsIn; });
  return deaths_.size() > kMostDeaths;
}

std::optional<int> Supervisor::look() {
  if (proxy_ && proxy_->poll_exit()) {
    options_.say("HAProxy " + proxy_->poll_exit()->to_string());
    proxy_.reset();
  }
  if (!proxy_ && Clock::now() >= proxy_at_) (void)start_proxy();
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
  if (!start_proxy() || !start_work()) return kFailed;
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
