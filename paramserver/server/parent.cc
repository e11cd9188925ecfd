// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/parent.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

namespace bellows::ps {
namespace {

/// A server that fails so often in a minute will go on failing.
constexpr int kMostEnds = 10;
constexpr std::chrono::minutes kEndsIn{1};
constexpr std::chrono::seconds kLook{10};
/// From Slurm's SIGTERM until the server of a job knows it: more than the launcher has for its
/// answer, which comes by way of the agent. That may be told later, and where it has ended, as with
/// scancel, the server sees that at once.
constexpr std::chrono::seconds kStopWithin{5};

}  // namespace

Parent::Parent(EventLoop& loop, const Fd& signals, bool in_job, Serve serve, Say say)
    : loop_(loop),
      signals_(signals),
      in_job_(in_job),
      serve_(std::move(serve)),
      say_(std::move(say)) {}

void Parent::set_learners(LearnerOptions options, const LearnerBoard& board) {
  learners_.emplace(loop_, std::move(options), board, say_);
}

int Parent::run() {
  auto watch = loop_.watch(signals_.get(), EPOLLIN, [this](std::uint32_t) { on_signal(); });
  if (!watch) {
    say_(watch.error().text);
    return kFailed;
  }
  if (!start_server()) return kFailed;
  for (;;) {
    auto until = EventLoop::Clock::now() + kLook;
    if (learners_) {
      until = learners_->settle();
      look_at_learners();
    }
    // The server goes last: what learners have pushed counts.
    if (server_ <= 0 && (!learners_ || learners_->are_gone())) break;
    loop_.run_once(std::min(until, pass_on_at_));
    if (EventLoop::Clock::now() >= pass_on_at_) pass_on();
  }
  if (learners_) learners_->close();
  return code_.value_or(kFailed);
}

/// Slurm may have sent SIGTERM to this process alone. The server ends now, unless it has to save.
void Parent::pass_on() {
  pass_on_at_ = EventLoop::Clock::time_point::max();
  if (server_ > 0) kill(server_, SIGTERM);
}

bool Parent::failed(const char* what) const {
  say_(errno_error("make", std::string("a ") + what).text);
  return false;
}

bool Parent::start_server() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) return failed("socket");
  keeper_watch_.end();
  keeper_.reset(ends[0]);
  Fd other(ends[1]);
  const pid_t parent = getpid();
  server_ = fork();
  if (server_ < 0) return failed("process");
  if (server_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // It may have been killed before that.
    if (getppid() != parent) _exit(kFailed);
    keeper_.reset();
    // It asks for what it wants of this.
    kept_ = KeptDescriptors();
    _exit(serve_(std::move(other)));
  }
  auto watch = loop_.watch(keeper_.get(), EPOLLIN, [this](std::uint32_t) { on_keeper(); });
  if (!watch) return failed("watch");
  keeper_watch_ = std::move(*watch);
  return true;
}

/// Its exit code; -1: it was killed.
int Parent::wait_for_server() const {
  int status = 0;
  while (waitpid(server_, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void Parent::on_keeper() {
  if (kept_.serve(keeper_.get())) return;
  keeper_watch_.end();
  const int code = wait_for_server();
  server_ = -1;
  // What is sent to all of them at once ends the server first.
  on_signal();
  if (code >= 0) return on_server_end(code);
  if (announced_) return on_server_end(128 + SIGTERM);
  // Also while it stops: what it has not saved yet is in the memory alone.
  if (too_many_ends()) return on_server_end(kFailed);
  say_("the server was killed; another goes on with its memory");
  if (!start_server()) return on_server_end(kFailed);
  if (told_ != 0) kill(server_, told_);
}

/// It does not come back.
void Parent::on_server_end(int code) {
  server_ = -1;
  if (!code_ || code != 0) code_ = code;
  if (learners_) learners_->end();
}

void Parent::on_signal() {
  signalfd_siginfo info;
  if (read(signals_.get(), &info, sizeof info) != sizeof info) return;
  const int number = static_cast<int>(info.ssi_signo);
  if (number == kFinish) {
    // Of those that this has started, it sees the end itself.
    if (!learners_) end_server(kFinish);
    return;
  }
  if (in_job_ && number == SIGTERM) {
    announced_ = true;
    pass_on_at_ = std::min(pass_on_at_, EventLoop::Clock::now() + kStopWithin);
    // They train until the server has saved, but may have got the signal too.
    if (learners_) learners_->start_none();
    return;
  }
  if (!learners_) {
    code_ = 0;
    return end_server(stop_signal());
  }
  // Whoever asks again does not want to wait for them.
  if (signalled_) end_server(stop_signal());
  signalled_ = true;
  // Learners that were not done must not look as if they were.
  if (!code_) code_ = 128 + number;
  learners_->end();
}

void Parent::look_at_learners() {
  if (!code_ && learners_->failure()) {
    code_ = learners_->failure();
    learners_->end();
  }
  if (server_ <= 0 || told_ != 0 || announced_) return;
  if (!code_ && learners_->have_finished()) {
    code_ = 0;
    end_server(kFinish);
  } else if (code_ && learners_->are_gone()) {
    end_server(stop_signal());
  }
}

void Parent::end_server(int signal) {
  told_ = signal;
  if (server_ > 0) kill(server_, signal);
}

bool Parent::too_many_ends() {
  const auto now = EventLoop::Clock::now();
  std::erase_if(ends_, [now](auto at) { return now - at > kEndsIn; });
  ends_.push_back(now);
  if (ends_.size() < kMostEnds) return false;
  say_(fmt::format("gives up: the server was killed {} times in a minute", kMostEnds));
  return true;
}

}  // namespace bellows::ps
