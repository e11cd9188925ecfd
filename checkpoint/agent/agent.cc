// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/agent.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <set>

#include "checkpoint/agent/agent_loop.h"
#include "checkpoint/protocol/attempt_name.h"
#include "checkpoint/protocol/coordinator.h"
#include "checkpoint/protocol/step_choice.h"
#include "checkpoint/system/memory_reserve.h"

namespace bellows {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostLine = 64 << 20;
/// A standalone agent that no rank joins was started by a program that died at once.
constexpr auto kNobodyCame = std::chrono::seconds(20);
/// Ranks that have not come by then run elsewhere, or not at all.
constexpr auto kAllHere = std::chrono::seconds(60);
/// What a launcher that is still there needs to commit the last shards after a SIGTERM.
constexpr auto kLauncherMayAsk = std::chrono::seconds(3);
/// How far ahead of the ranks a standalone agent sets the first gate.
constexpr std::uint64_t kMargin = 2;

volatile std::sig_atomic_t term_came = 0;
/// What Slurm sends to all steps; the more urgent first.
constexpr struct {
  int number;
  event::Progress::Signal said;
} kAnnounced[] = {{SIGTERM, event::Progress::Signal::term},
                  {SIGUSR1, event::Progress::Signal::usr1}};
volatile std::sig_atomic_t unreported[std::size(kAnnounced)] = {};
/// Ends a poll that begins only after the signal.
std::atomic<int> signal_event = -1;

void note_signal(int number) {
  const int before = errno;
  if (number == SIGTERM) term_came = 1;
  for (std::size_t i = 0; i < std::size(kAnnounced); ++i)
    if (kAnnounced[i].number == number) unreported[i] = 1;
  eventfd_write(signal_event, 1);
  errno = before;
}

std::string node_name(const AgentOptions& options) {
  if (!options.node.empty()) return options.node;
  if (const char* name = std::getenv("SLURMD_NODENAME"); name && *name) return name;
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  return host;
}

Result<std::string> socket_path(const AgentOptions& options) {
  if (!options.socket_path.empty()) return options.socket_path;
  if (const char* dir = std::getenv("BELLOWS_RUN_DIR"); dir && *dir) {
    return std::string(dir) + "/agent.sock";
  }
  return Error{ErrorKind::invalid,
               "the agent needs a socket: pass --socket or set BELLOWS_RUN_DIR"};
}

// Whoever can write to the directory could take the socket's place.
Status check_directory(const std::string& dir) {
  if (mkdir(dir.c_str(), 0700) < 0 && errno != EEXIST) return errno_error("make", dir);
  struct stat s;
  if (lstat(dir.c_str(), &s) < 0) return errno_error("look at", dir);
  if (S_ISDIR(s.st_mode) && s.st_uid == geteuid() && (s.st_mode & 0077) == 0) return {};
  return Error{
      ErrorKind::denied,
      fmt::format("{} must be a directory of this user with mode 0700, for the socket", dir)};
}

Result<Fd> listen_on(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error{ErrorKind::invalid, fmt::format("the socket's path is longer than {} bytes: {}",
                                                 sizeof address.sun_path - 1, path)};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  auto status = check_directory(std::filesystem::path(path).parent_path());
  if (!status) return status.error();
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error("make", "a socket");
  // A socket that an earlier agent left. Agents are started one at a time, under a lock or by the
  // launcher.
  unlink(path.c_str());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0 ||
      listen(fd.get(), 1024) < 0) {
    return errno_error("listen on", path);
  }
  return fd;
}

/// Removes the socket's name when the agent ends.
class SocketName {
 public:
  explicit SocketName(std::string path) : path_(std::move(path)) {}
  SocketName(const SocketName&) = delete;
  SocketName& operator=(const SocketName&) = delete;
  ~SocketName() { remove(); }
  void remove() {
    if (!path_.empty()) unlink(path_.c_str());
    path_.clear();
  }

 private:
  std::string path_;
};

struct Started {
  std::string path;
  Fd listener;
  std::unique_ptr<Completions> completions;
};

Result<Started> start(const AgentOptions& options) {
  auto path = socket_path(options);
  if (!path) return path.error();
  auto listener = listen_on(*path);
  if (!listener) return listener.error();
  auto completions = Completions::make();
  if (!completions) return completions.error();
  return Started{*path, std::move(*listener), std::move(*completions)};
}

// Waits for the loop's descriptors and `extra`, serves the loop, and returns what is readable.
std::set<int> poll_once(AgentLoop& loop, std::initializer_list<int> extra, int timeout_ms) {
  std::vector<pollfd> fds;
  for (int fd : loop.descriptors()) fds.push_back({fd, POLLIN, 0});
  for (int fd : extra) fds.push_back({fd, POLLIN, 0});
  if (poll(fds.data(), fds.size(), timeout_ms) < 0) return {};
  std::set<int> readable;
  for (const pollfd& p : fds) {
    if (p.revents) readable.insert(p.fd);
  }
  loop.serve(readable);
  return readable;
}

/// The launcher's lines. Main thread only.
class LineInput {
 public:
  explicit LineInput(int fd) : fd_(fd) {}

  /// Reads what there is; false at the end, or when a line is absurdly long.
  bool read_some(std::deque<std::string>* lines) {
    char chunk[65536];
    const ssize_t got = read(fd_, chunk, sizeof chunk);
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    if (got == 0) return false;
    text_.append(chunk, static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end; (end = text_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      lines->push_back(text_.substr(begin, end - begin));
    }
    text_.erase(0, begin);
    return text_.size() <= kMostLine;
  }

 private:
  int fd_;
  std::string text_;
};

int complain(const AgentOptions& options, const Error& error) {
  if (options.mode == AgentOptions::Mode::standalone) {
    const char* word = error.kind == ErrorKind::busy ? "busy" : "error";
    (void)write_all(options.out_fd, fmt::format("{} {}\n", word, error.text), "standard output");
  } else {
    fmt::print(stderr, "bellows agent: {}\n", error.text);
  }
  return error.kind == ErrorKind::invalid ? 2 : 1;
}

/// Serves a launcher until its end of the pipe closes.
class JobAgent {
 public:
  JobAgent(const AgentOptions& options, Started started, FileOps& ops)
      : options_(options),
        node_(node_name(options)),
        name_(started.path),
        loop_(node_, std::move(started.listener), ops, std::move(started.completions),
              options.gate_limit_ms, [this](const Event& e) { write(e); }) {}

  ~JobAgent() {
    int mine = signals_.get();
    signal_event.compare_exchange_strong(mine, -1);
  }

  int run() {
    if (!signals_) return complain(options_, errno_error("make", "an event descriptor"));
    signal_event = signals_.get();
    // Preemption and time limits send SIGTERM to every step, but the ranks' last save still needs
    // its agent. The launcher's end of file ends it; where the launcher's node is lost none comes.
    // Slurm spares the launcher, which is no step: so it hears from here.
    std::signal(SIGTERM, note_signal);
    std::signal(SIGUSR1, note_signal);
    std::signal(SIGINT, SIG_IGN);
    say(event::Hello{getpid()});
    LineInput input(options_.in_fd);
    auto next_progress = Clock::now() + std::chrono::seconds(1);
    while (!ended_) {
      reserve_.refill();
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(next_progress - Clock::now());
      const auto ready = poll_once(loop_, {options_.in_fd, signals_.get()},
                                   static_cast<int>(std::max<long>(left.count(), 0)));
      const bool readable = ready.contains(options_.in_fd);
      if (readable && !take_lines(input)) break;
      if (readable || !term_came || !loop_.idle()) last_needed_ = Clock::now();
      if (Clock::now() - last_needed_ > kLauncherMayAsk) break;
      say_signals();
      if (Clock::now() < next_progress) continue;
      next_progress = Clock::now() + std::chrono::seconds(1);
      loop_.tick();
      say(loop_.progress());
    }
    return 0;
  }

 private:
  bool take_lines(LineInput& input) {
    std::deque<std::string> lines;
    const bool more = input.read_some(&lines);
    for (const std::string& line : lines) {
      auto command = parse_command(line);
      if (!command) {
        say(event::CommandFailed{.error = command.error()});
      } else if (std::holds_alternative<command::Quit>(command->body) &&
                 (command->node.empty() || command->node == node_)) {
        return false;
      } else {
        loop_.handle(*command);
      }
    }
    return more;
  }

  void say_signals() {
    eventfd_t ignored;
    eventfd_read(signals_.get(), &ignored);
    for (std::size_t i = 0; i < std::size(kAnnounced); ++i) {
      if (!unreported[i]) continue;
      unreported[i] = 0;
      loop_.announce();
      event::Progress progress = loop_.progress();
      progress.signal = kAnnounced[i].said;
      say(std::move(progress));
    }
  }

  void say(Event::Body event) { write({std::move(event), node_}); }

  // A launcher always reads; one that doesn't has died or will.
  void write(const Event& event) {
    if (!write_all(options_.out_fd, to_line(event) + "\n", "standard output")) ended_ = true;
  }

  const AgentOptions& options_;
  std::string node_;
  bool ended_ = false;
  Fd signals_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Clock::time_point last_needed_ = Clock::now();
  MemoryReserve reserve_;
  SocketName name_;
  AgentLoop loop_;
};

/// Serves the ranks of one program on this machine, deciding by itself.
class StandaloneAgent {
 public:
  StandaloneAgent(const AgentOptions& options, StorePlace place, Started started, FileOps& ops)
      : options_(options),
        place_(std::move(place)),
        access_(ops.access()),
        node_(node_name(options)),
        coordinator_(options.world),
        // Of several ranks some may go on before another meets a bad block; then it is too late.
        choice_(options.world > 1),
        name_(started.path),
        loop_(node_, std::move(started.listener), ops, std::move(started.completions),
              options.gate_limit_ms, [this](const Event& e) { events_.push_back(e.body); }) {}

  int run(int signals) {
    loop_.serve_one_program();
    begin();
    const auto born = Clock::now();
    while (true) {
      reserve_.refill();
      if (poll_once(loop_, {signals}, 1000).contains(signals)) begin_stop(signals);
      loop_.tick();
      settle();
      check_all_here();
      if (loop_.any_left()) {
        // The next program must start its own agent: this one's ranks are on their way out.
        name_.remove();
        if (loop_.idle()) return 0;
      }
      if (!loop_.had_ranks() && loop_.idle() && Clock::now() - born > kNobodyCame) return 0;
    }
  }

 private:
  void begin() {
    command::Hello hello;
    hello.dir = place_.dir;
    hello.base = place_.base;
    hello.access = access_;
    hello.attempt = program_attempt(node_);
    hello.leader = node_;
    hello.world = options_.world;
    hello.keep = options_.keep;
    hello.keep_every = options_.keep_every;
    loop_.handle({std::move(hello)});
    loop_.handle({choice_.find()});
    settle();
  }

  void begin_stop(int signals) {
    signalfd_siginfo ignored;
    if (read(signals, &ignored, sizeof ignored) < 0 || stop_) return;
    stop_.emplace(1, loop_.progress().max_step, kMargin);
    loop_.handle({stop_->begin()});
  }

  // Answers the loop's events until there are no more.
  void settle() {
    while (!events_.empty()) {
      const Event::Body event = std::move(events_.front());
      events_.pop_front();
      const auto answer_said = [this](const auto& said) { return answer(said); };
      for (const Command& c : std::visit(answer_said, event)) loop_.handle(c);
    }
  }

  // Ranks of one program on several machines each have an agent that waits for the others' ranks.
  void check_all_here() {
    if (!waiting_since_ || joined_.size() >= options_.world ||
        Clock::now() - *waiting_since_ < kAllHere) {
      return;
    }
    waiting_since_.reset();
    for (const std::uint64_t step : coordinator_.pending()) {
      const std::string why = fmt::format(
          "step {} cannot be saved: only {} of {} ranks are here; without bellows run, all ranks "
          "must run on one machine with the same checkpoint directory",
          step, joined_.size(), options_.world);
      events_.push_back(event::CommandFailed{"commit", step, Error{ErrorKind::unavailable, why}});
    }
    settle();
  }

  std::vector<Command> answer(const event::Found& found) {
    for (const SkippedStep& s : found.skipped) {
      fmt::print(stderr, "bellows: step {} is skipped: {}\n", s.step, s.error);
    }
    if (found.step) choice_.note_good(*found.step);
    return {Command{choice_.offer(found)}};
  }

  std::vector<Command> answer(const event::RestoreError& bad) {
    if (choice_.note_bad(bad) && options_.world == 1) return {Command{choice_.find()}};
    return {Command{command::Restore{.step = bad.step, .error = bad.error}}};
  }

  std::vector<Command> answer(const event::Gated& gated) {
    return stop_ ? stop_->handle(node_, gated) : std::vector<Command>();
  }

  std::vector<Command> answer(const event::CommandFailed& failed) {
    if (failed.cmd == "gate") stop_.reset();
    if (failed.cmd == "find")
      return {Command{command::Restore{.step = failed.step, .error = failed.error}}};
    if (failed.cmd == "retention") {
      fmt::print(stderr, "bellows: after step {}: {}\n", failed.step.value_or(0),
                 failed.error.text);
    }
    return coordinator_.handle(failed);
  }

  std::vector<Command> answer(const event::Rank& rank) {
    if (rank.state == event::Rank::State::joined) joined_.insert(rank.rank);
    return coordinator_.handle(rank);
  }

  std::vector<Command> answer(const event::Shard& shard) {
    if (!waiting_since_) waiting_since_ = Clock::now();
    return coordinator_.handle(shard);
  }

  std::vector<Command> answer(const event::Committed& committed) {
    waiting_since_.reset();
    choice_.note_good(committed.step);
    return coordinator_.handle(committed);
  }

  std::vector<Command> answer(const auto& other) { return coordinator_.handle(other); }

  const AgentOptions& options_;
  const StorePlace place_;
  const Access access_;
  std::string node_;
  Coordinator coordinator_;
  StepChoice choice_;
  std::optional<StopDecision> stop_;
  std::deque<Event::Body> events_;
  std::set<std::uint32_t> joined_;
  std::optional<Clock::time_point> waiting_since_;  ///< a save that is not complete yet
  MemoryReserve reserve_;
  SocketName name_;
  AgentLoop loop_;
};

int run_standalone(const AgentOptions& options, FileOps& ops) {
  if (options.dir.empty() || options.dir[0] != '/' || options.world == 0 || options.keep == 0) {
    return complain(options,
                    Error{ErrorKind::invalid,
                          "--standalone needs --dir with an absolute path, and --world and "
                          "--keep of at least 1"});
  }
  Access access = Access::owner;
  const StorePlace place = place_in_job(options.dir, &access);
  ops.set_access(access);
  if (auto status = make_place(ops, place); !status) return complain(options, status.error());
  auto held = hold_store(options.dir);
  if (!held) return complain(options, held.error());
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  Fd signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  std::signal(SIGINT, SIG_IGN);
  auto started = start(options);
  if (!started) return complain(options, started.error());
  StandaloneAgent agent(options, place, std::move(*started), ops);
  auto said = write_all(options.out_fd, "ready\n", "standard output");
  // The program that started us may wait for the end of its output.
  if (options.out_fd == 1) {
    Fd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
    dup2(null.get(), 1);
  }
  return said ? agent.run(signals.get()) : 1;
}

// Each rank takes several, and no descriptor here is for select().
void allow_all_descriptors() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int run_job(const AgentOptions& options, FileOps& ops) {
  auto started = start(options);
  if (!started) return complain(options, started.error());
  return JobAgent(options, std::move(*started), ops).run();
}

}  // namespace

int agent_main(const AgentOptions& options) noexcept try {
  std::signal(SIGPIPE, SIG_IGN);
  // Past a file size limit, a write must give an error and not end the agent.
  std::signal(SIGXFSZ, SIG_IGN);
  allow_all_descriptors();
  FileOps ops;
  return options.mode == AgentOptions::Mode::job ? run_job(options, ops)
                                                 : run_standalone(options, ops);
} catch (const std::exception& e) {
  std::fprintf(stderr, "bellows agent: %s\n", e.what());
  return 1;
}

}  // namespace bellows
