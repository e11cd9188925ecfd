// SPDX-License-Identifier: Apache-2.0
// bellows-ps: a parameter server for the learners of one node. See ../README.md.
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "config.h"

#include "common/event_loop.h"
#include "common/keeper/kept.h"
#include "common/listen_at.h"
#include "common/plain/packet.h"
#include "common/say_line.h"
#include "paramserver/server/ps_server.h"

namespace bellows::ps {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;
/// As a shell says it of who was killed by a signal, to which it is added.
constexpr int kKilled = 128;
/// A server that fails so often in a minute will go on failing.
constexpr int kMostEnds = 10;
constexpr std::chrono::minutes kEndsIn{1};

void say(const std::string& text) { say_line("bellows-ps", text); }

struct Texts {
  std::string socket;
  std::string mode = "async";
  std::string checkpoint_dir;
  std::uint32_t checkpoint_every = 60;
  ServerOptions server;
};

void add_options(CLI::App& app, Texts& t) {
  app.set_version_flag("--version", "bellows-ps " PACKAGE_VERSION);
  app.add_option("--socket", t.socket, "Where learners connect")->required();
  app.add_option("--learners", t.server.learners, "At most so many at the same time")
      ->check(CLI::Range(1u, kMostLearners))
      ->capture_default_str();
  app.add_option("--threads", t.server.threads, "Threads, each with a part of the parameters")
      ->check(CLI::Range(1u, kMostShards))
      ->capture_default_str();
  app.add_option("--mode", t.mode,
                 "async: each gradient is applied when it comes; sync: those of all learners at "
                 "once, summed in their order")
      ->check(CLI::IsMember({"async", "sync"}))
      ->capture_default_str();
  app.add_option("--checkpoint-dir", t.checkpoint_dir,
                 "Where the training is saved, and where it goes on from (under bellows run: the "
                 "job's)");
  app.add_option("--checkpoint-every", t.checkpoint_every,
                 "Seconds between two checkpoints; 0: only at the end")
      ->check(CLI::Range(0u, 86400u * 30))
      ->capture_default_str();
  app.add_option("--first-sequence", t.server.first_sequence,
                 "The number before each learner's first gradient, for tests")
      ->group("");
}

/// In a job Slurm's signals are announcements, which libbellows takes in a thread of the server.
Fd server_signals() {
  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGUSR2);
  if (!is_in_job())
    for (const int number : {SIGTERM, SIGINT}) sigaddset(&taken, number);
  return Fd(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
}

/// SIGUSR2: all learners have ended, or are about to. Else it is to end, as soon as all is saved; a
/// second time at once.
void take_signal(int signals, PsServer& server, bool& ends) {
  signalfd_siginfo info;
  while (read(signals, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGUSR2) {
      server.finish();
    } else {
      // The saver may wait for its agent; the kernel lets go of all that is held.
      if (std::exchange(ends, true)) _exit(kFailed);
      server.stop();
    }
  }
}

int serve(Fd listener, Fd keeper, const ServerOptions& options) {
  const Fd signals = server_signals();
  auto loop = EventLoop::make();
  auto server = loop ? PsServer::make(**loop, std::move(listener), SeatKeeper(std::move(keeper)),
                                      options, say)
                     : Result<std::unique_ptr<PsServer>>(loop.error());
  if (!server) {
    say(server.error().text);
    return kFailed;
  }
  bool ends = false;
  auto watch = (*loop)->watch(signals.get(), POLLIN,
                              [&](std::uint32_t) { take_signal(signals.get(), **server, ends); });
  if (!watch) {
    say(watch.error().text);
    return kFailed;
  }
  say("is ready");
  while (!(*server)->over()) (*loop)->run_once((*server)->settle());
  return (*server)->over() == Saver::End::failed ? kFailed : 0;
}

/// Keeps the memory and starts a server again when it is killed.
class Parent {
 public:
  Parent(Fd listener, const ServerOptions& options, int signals)
      : listener_(std::move(listener)), options_(options), signals_(signals) {}

  int run() {
    if (!start()) return kFailed;
    for (;;) {
      pollfd fds[] = {{keeper_.get(), POLLIN, 0}, {signals_, POLLIN, 0}};
      if (poll(fds, 2, -1) < 0) continue;
      if (fds[0].revents && !kept_.serve(keeper_.get())) {
        const int code = wait_for_child();
        if (code < kKilled || ends_now_) return code;
        if (too_many_ends()) return kFailed;
        say("the server was killed; another goes on with its memory");
        if (!start()) return kFailed;
      } else if (fds[1].revents) {
        pass_signal();
      }
    }
  }

 private:
  bool start() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) return failed("socket");
    keeper_.reset(ends[0]);
    Fd other(ends[1]);
    child_ = fork();
    if (child_ < 0) return failed("process");
    if (child_ > 0) return true;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    keeper_.reset();
    // It asks for what it wants of this.
    kept_ = KeptDescriptors();
    _exit(serve(std::move(listener_), std::move(other), options_));
  }
  void pass_signal() {
    signalfd_siginfo info;
    if (read(signals_, &info, sizeof info) != sizeof info) return;
    const int number = static_cast<int>(info.ssi_signo);
    if (number != SIGUSR2) ends_now_ = true;
    kill(child_, number);
  }
  static bool failed(const char* what) {
    say(errno_error("make", std::string("a ") + what).text);
    return false;
  }
  /// Its exit code, or kKilled + a signal.
  int wait_for_child() const {
    int status = 0;
    if (waitpid(child_, &status, 0) != child_) return kFailed;
    return WIFSIGNALED(status) ? kKilled + WTERMSIG(status) : WEXITSTATUS(status);
  }
  bool too_many_ends() {
    const auto now = EventLoop::Clock::now();
    std::erase_if(ends_, [now](auto at) { return now - at > kEndsIn; });
    ends_.push_back(now);
    if (ends_.size() < kMostEnds) return false;
    say(fmt::format("gives up: the server was killed {} times in a minute", kMostEnds));
    return true;
  }

  Fd listener_;
  ServerOptions options_;
  int signals_;
  KeptDescriptors kept_;
  Fd keeper_;
  pid_t child_ = -1;
  bool ends_now_ = false;
  std::vector<EventLoop::Clock::time_point> ends_;
};

int run(int argc, char** argv) {
  Texts texts;
  CLI::App app("bellows-ps: a parameter server for the learners of one node");
  add_options(app, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  texts.server.mode = texts.mode == "sync" ? Mode::synchronous : Mode::asynchronous;
  if (is_in_job() || !texts.checkpoint_dir.empty())
    texts.server.save =
        SaverOptions{texts.checkpoint_dir, std::chrono::seconds(texts.checkpoint_every)};
  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : {SIGTERM, SIGINT, SIGUSR2}) sigaddset(&taken, number);
  sigset_t blocked = taken;
  // To all of a step it is an announcement, for the server alone.
  sigaddset(&blocked, SIGUSR1);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const Fd signals(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (plain::Handle other; plain::connect_to(texts.socket.c_str(), &other, 1) == 0) {
    say(texts.socket + ": another bellows-ps has this socket; give another --socket");
    return kFailed;
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
  }
  auto listener = listen_at(texts.socket, 0600);
  if (!listener) {
    say(listener.error().text);
    return kFailed;
  }
  const int code = Parent(std::move(*listener), texts.server, signals.get()).run();
  unlink(texts.socket.c_str());
  return code;
}

}  // namespace
}  // namespace bellows::ps

int main(int argc, char** argv) {
  try {
    return bellows::ps::run(argc, argv);
  } catch (const std::exception& error) {
    bellows::ps::say(error.what());
    return bellows::ps::kFailed;
  }
}
