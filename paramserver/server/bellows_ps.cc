// SPDX-License-Identifier: Apache-2.0
// bellows-ps: a parameter server for the learners of one node. See ../README.md.
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "config.h"

#include "common/event_loop.h"
#include "common/listen_at.h"
#include "common/say_line.h"
#include "paramserver/server/learner_descendants.h"
#include "paramserver/server/learner_guard.h"
#include "paramserver/server/parent.h"
#include "paramserver/server/ps_server.h"
#include "paramserver/server/socket_place.h"
#include "paramserver/server/started_learners.h"

namespace bellows::ps {
namespace {

constexpr int kFailed = Parent::kFailed;
constexpr int kWrongUsage = 2;
void say(const std::string& text) { say_line("bellows-ps", text); }

struct Texts {
  std::string socket;
  std::string mode = "async";
  std::string checkpoint_dir;
  std::uint32_t checkpoint_every = 60;
  std::uint32_t checkpoint_every_ms = 0;
  ServerOptions server;
  LearnerOptions learners;
};

void add_options(CLI::App& app, Texts& t) {
  app.set_version_flag("--version", "bellows-ps " PACKAGE_VERSION);
  app.add_option("--socket", t.socket,
                 "Where learners connect; with COMMAND by default in a new directory");
  app.add_option("--learners", t.learners.learners,
                 "At most so many at the same time, by default 8; with COMMAND so many are "
                 "started, by default one for each GPU")
      ->check(CLI::Range(1u, kMostLearners));
  app.add_option("--threads", t.server.threads, "Threads, each with a part of the parameters")
      ->check(CLI::Range(1u, kMostShards))
      ->capture_default_str();
  app.add_option(
         "--mode", t.mode,
         "async: each gradient is applied when it comes; bounded: so, and a learner waits "
         "that is too far ahead; sync: those of all learners at once, summed in their order")
      ->check(CLI::IsMember({"async", "bounded", "sync"}))
      ->capture_default_str();
  app.add_option("--staleness", t.server.staleness,
                 "With --mode=bounded: how many gradients a learner may be ahead of the slowest")
      ->check(CLI::Range(0u, 1u << 30))
      ->capture_default_str();
  app.add_option("--checkpoint-dir", t.checkpoint_dir,
                 "Where the training is saved, and where it goes on from (under bellows run: the "
                 "job's)");
  app.add_option("--checkpoint-every", t.checkpoint_every,
                 "Seconds between two checkpoints; 0: only at the end")
      ->check(CLI::Range(0u, 86400u * 30))
      ->capture_default_str();
  app.add_option("--restarts", t.learners.restarts,
                 "How often in a row a learner is started again that fails before an update")
      ->check(CLI::Range(0u, 1000u))
      ->capture_default_str();
  app.add_option("COMMAND", t.learners.command, "The program of each learner, and arguments");
  app.positionals_at_end();
  app.add_option("--first-sequence", t.server.first_sequence,
                 "The number before each learner's first gradient, for tests")
      ->group("");
  app.add_option("--checkpoint-every-ms", t.checkpoint_every_ms,
                 "As --checkpoint-every, in milliseconds, for tests")
      ->group("");
}

/// To read signals from that are blocked.
Fd signals_of(const std::vector<int>& numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) sigaddset(&set, number);
  return Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

/// What a server obeys. A terminal's SIGINT comes to all; this one waits for its parent. In a job
/// Slurm's SIGTERM is an announcement, which libbellows takes in a thread of the server.
std::vector<int> server_signals() {
  std::vector<int> numbers = {Parent::kFinish, Parent::stop_signal()};
  if (!is_in_job()) numbers.push_back(SIGTERM);
  return numbers;
}

/// A second time: at once.
void take_signal(const Fd& signals, PsServer& server, bool& stops) {
  signalfd_siginfo info;
  while (read(signals.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == Parent::kFinish) {
      server.finish();
      continue;
    }
    // The saver may wait for its agent; the kernel lets go of all that is held.
    if (std::exchange(stops, true)) _exit(kFailed);
    server.stop();
  }
}

/// The process of the server.
int serve(Fd listener, Fd keeper, const ServerOptions& options) {
  const Fd signals = signals_of(server_signals());
  auto loop = EventLoop::make();
  auto server = loop ? PsServer::make(**loop, std::move(listener), SeatKeeper(std::move(keeper)),
                                      options, say)
                     : Result<std::unique_ptr<PsServer>>(loop.error());
  if (!server) {
    say(server.error().text);
    return kFailed;
  }
  bool stops = false;
  auto watch = (*loop)->watch(signals.get(), POLLIN,
                              [&](std::uint32_t) { take_signal(signals, **server, stops); });
  if (!watch) {
    say(watch.error().text);
    return kFailed;
  }
  say("is ready");
  while (!(*server)->over()) (*loop)->run_once((*server)->settle());
  return (*server)->over() == Saver::End::failed ? kFailed : 0;
}

/// The number of learners, by what was given.
void count_learners(Texts& t, bool given) {
  const bool starts = !t.learners.command.empty();
  if (!given) {
    const std::uint32_t gpus = gpus_in(environ);
    t.learners.learners = starts ? std::clamp(gpus, 1u, kMostLearners) : t.server.learners;
  }
  t.server.learners = t.learners.learners;
}

void prepare_process() {
  sigset_t taken;
  sigemptyset(&taken);
  // SIGUSR1 to all of a step is an announcement, for libbellows alone.
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, Parent::kFinish, Parent::stop_signal()})
    sigaddset(&taken, number);
  sigprocmask(SIG_BLOCK, &taken, nullptr);
  signal(SIGPIPE, SIG_IGN);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
  }
}

/// Under another name until it listens, so that who finds the socket can connect.
Result<Fd> listen_ready(SocketPlace& place, const std::optional<LearnerBoard>& board) {
  const std::string unready = SocketPlace::unready(place.path());
  auto listener = listen_at(unready, 0600);
  struct stat info;
  if (listener && lstat(unready.c_str(), &info) == 0) {
    place.note(info.st_ino);
    if (board) board->socket() = info.st_ino;
  }
  if (listener && rename(unready.c_str(), place.path().c_str()) != 0)
    return errno_error("rename", unready);
  return listener;
}

/// The exit status.
Result<int> run_parent(Texts& texts) {
  auto place = SocketPlace::make(texts.socket);
  if (!place) return place.error();
  auto loop = EventLoop::make();
  if (!loop) return loop.error();
  std::optional<LearnerBoard> board;
  std::optional<LearnerRun> run;
  std::optional<StartedLearners> started_learners;
  std::optional<LearnerGuard> guard;
  if (!texts.learners.command.empty()) {
    auto made = LearnerBoard::make();
    if (!made) return made.error();
    board.emplace(std::move(*made));
    auto named = LearnerRun::make();
    if (!named) return named.error();
    run.emplace(std::move(*named));
    auto started = LearnerGuard::start(*board, *run, place->path(), place->directory());
    if (!started) return started.error();
    guard.emplace(std::move(*started));
    started_learners.emplace(*board, *run);
    texts.server.started = &*started_learners;
    texts.learners.socket = place->path();
    texts.learners.run = run;
  }
  auto listener = listen_ready(*place, board);
  if (!listener) return listener.error();
  const Fd signals = signals_of({SIGTERM, SIGINT, Parent::kFinish});
  Parent parent(
      **loop, signals, is_in_job(),
      [&](Fd keeper) { return serve(std::move(*listener), std::move(keeper), texts.server); }, say);
  if (board) parent.set_learners(std::move(texts.learners), *board);
  const int code = parent.run();
  if (run) run->kill_all(LearnerRun::kAtEnd);
  return code;
}

int run(int argc, char** argv) {
  Texts texts;
  CLI::App app("bellows-ps: a parameter server for the learners of one node");
  add_options(app, texts);
  try {
    app.parse(argc, argv);
    if (texts.socket.empty() && texts.learners.command.empty())
      throw CLI::RequiredError("--socket or COMMAND");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  texts.server.mode = texts.mode == "sync"      ? Mode::synchronous
                      : texts.mode == "bounded" ? Mode::bounded
                                                : Mode::asynchronous;
  std::chrono::milliseconds every = std::chrono::seconds(texts.checkpoint_every);
  if (texts.checkpoint_every_ms > 0) every = std::chrono::milliseconds(texts.checkpoint_every_ms);
  if (is_in_job() || !texts.checkpoint_dir.empty())
    texts.server.save = SaverOptions{texts.checkpoint_dir, every};
  count_learners(texts, app.count("--learners") > 0);
  prepare_process();
  const auto code = run_parent(texts);
  if (code) return *code;
  say(code.error().text);
  return kFailed;
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
