// SPDX-License-Identifier: Apache-2.0
#include "pool/member/agent.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/own_process.h"
#include "pool/member/listener.h"
#include "pool/wire/node_place.h"

namespace bellows::pool {
namespace {

constexpr std::chrono::milliseconds kLook{1000};
/// While the program starts: a pool that waits for it pays for each of them.
constexpr std::chrono::milliseconds kLookForPort{100};
/// The keeper and the network are not to be flooded by one who says much.
constexpr std::chrono::milliseconds kBetweenReports{50};
/// Until all callers know that a member is leaving whose program is not told itself.
constexpr std::chrono::seconds kCallersKnow{2};
constexpr std::chrono::seconds kAfterTerm{5};
constexpr std::chrono::seconds kSharedAgain{2};
constexpr std::chrono::seconds kSharedEndsWithin{3};
/// What is older than this is not reported.
constexpr std::chrono::hours kLongestKept{1};

/// Later agents of a job have larger ones.
std::uint64_t new_incarnation() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

bool takes_connections(std::uint16_t port) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return socket &&
         connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

/// At most kLongestKept.
std::uint32_t milliseconds_since(std::chrono::steady_clock::time_point then,
                                 std::chrono::steady_clock::time_point now) {
  const auto age = std::min<std::chrono::steady_clock::duration>(now - then, kLongestKept);
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(age).count());
}

std::uint64_t milliseconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

/// A program that serves callers by itself refuses those that mean another one.
std::vector<std::string> program_environment(const std::string& socket, std::uint64_t incarnation) {
  std::vector<std::string> environment = own_environment();
  std::erase_if(environment, [](std::string_view entry) {
    return entry.starts_with("BELLOWS_POOL_SOCKET=") ||
           entry.starts_with("BELLOWS_POOL_INCARNATION=");
  });
  environment.push_back("BELLOWS_POOL_SOCKET=" + socket);
  environment.push_back("BELLOWS_POOL_INCARNATION=" + std::to_string(incarnation));
  return environment;
}

}  // namespace

MemberAgent::MemberAgent(EventLoop& loop, const Fd& signals, MemberOptions options, Say say)
    : loop_(loop),
      signals_(signals),
      options_(std::move(options)),
      say_(std::move(say)),
      incarnation_(new_incarnation()),
      usage_(Usage::of_job()),
      gpus_(GpuMeter::of_job()) {}

Status MemberAgent::start(const PoolKey& key, const std::string& folder) {
  const std::string socket = folder + "/member";
  auto lines = ProgramLines::open(loop_, notes_, socket);
  if (!lines) return lines.error();
  lines_ = std::move(*lines);
  auto keeper = KeeperLine::open(options_.pool_dir, key);
  if (!keeper) return keeper.error();
  keeper_ = std::move(*keeper);
  auto bell = loop_.watch(keeper_->bell().get(), EPOLLIN, [this](std::uint32_t) { on_bell(); });
  if (!bell) return bell.error();
  bell_watch_ = std::move(*bell);
  auto signal = loop_.watch(signals_.get(), EPOLLIN, [this](std::uint32_t) { on_signal(); });
  if (!signal) return signal.error();
  signal_watch_ = std::move(*signal);
  auto program = Child::start({.command = options_.command,
                               .environment = program_environment(socket, incarnation_),
                               .death_signal = SIGKILL});
  if (!program) return program.error();
  program_ = std::move(*program);
  return start_scraper();
}

/// After the program, which must not have the descriptors of libcurl.
Status MemberAgent::start_scraper() {
  if (options_.scrape_url.empty()) return {};
  auto scraper = Scraper::start(options_.scrape_url, options_.scrape_names);
  if (!scraper) return scraper.error();
  scraper_ = std::move(*scraper);
  auto watch = loop_.watch(scraper_->bell().get(), EPOLLIN, [this](std::uint32_t) { on_scrape(); });
  if (!watch) return watch.error();
  scrape_watch_ = std::move(*watch);
  return {};
}

void MemberAgent::on_scrape() {
  std::uint64_t rings = 0;
  (void)!read(scraper_->bell().get(), &rings, sizeof rings);
  // A program that only starts can't answer yet.
  if (const auto trouble = scraper_->take_trouble();
      trouble && notes_.ready && *trouble != scrape_trouble_)
    say_("has no metrics: " + (scrape_trouble_ = *trouble));
  const auto scrape = scraper_->take_scrape();
  if (!scrape) return;
  scrape_trouble_.clear();
  scrape_notes_.take(*scrape, notes_);
  notes_.has_news = true;
}

void MemberAgent::on_signal() {
  signalfd_siginfo info;
  if (read(signals_.get(), &info, sizeof info) != sizeof info) return;
  if (info.ssi_signo != SIGCHLD) drain(options_.drain, "Slurm ends the job");
}

void MemberAgent::on_bell() {
  std::uint64_t rings = 0;
  (void)!read(keeper_->bell().get(), &rings, sizeof rings);
  if (const auto trouble = keeper_->take_trouble(); trouble && *trouble != trouble_)
    say_("has no keeper: " + (trouble_ = *trouble));
  const auto order = keeper_->take_order();
  if (!order) return;
  trouble_.clear();
  lines_->tell_size(order->size());
  if (order->drain())
    drain(std::chrono::seconds(order->drain_seconds()), "the pool does not need it any more");
}

/// The program ends by itself if it listens to its agent; any other is told by a signal, once no
/// caller sends it anything.
void MemberAgent::drain(std::chrono::seconds within, const char* why) {
  const auto now = Clock::now();
  if (std::exchange(ending_.begun, true)) {
    // Slurm may give less time than the pool.
    ending_.term_at = std::min(ending_.term_at, now + within);
    ending_.kill_at = std::min(ending_.kill_at, now + within + kAfterTerm);
    return;
  }
  notes_.has_news = true;
  say_(fmt::format("drains within {} s: {}", within.count(), why));
  lines_->tell_drain(static_cast<std::uint32_t>(within.count()));
  ending_.term_at = now + (lines_->watched() ? within : std::min(within, kCallersKnow));
  ending_.kill_at = now + within + kAfterTerm;
}

void MemberAgent::drive_end(Clock::time_point now) {
  if (now >= ending_.term_at) {
    ending_.term_at = Clock::time_point::max();
    program_->signal(SIGTERM);
  }
  if (now >= ending_.kill_at) {
    ending_.kill_at = Clock::time_point::max();
    say_("kills the program, which has not ended in time");
    program_->signal(SIGKILL);
  }
}

void MemberAgent::look_at_port() {
  if (options_.port == 0 || notes_.ready || !takes_connections(options_.port)) return;
  // Who was there first would get the member's calls.
  if (const auto stranger = stranger_at(options_.port)) {
    if (!std::exchange(port_taken_, true))
      say_(fmt::format("is not ready: user {} listens at port {}", *stranger, options_.port));
    return;
  }
  notes_.port = options_.port;
  notes_.ready = notes_.has_news = true;
}

void MemberAgent::look(Clock::time_point now) {
  look_at_port();
  if (now < look_at_) return;
  look_at_ = now + kLook;
  usage_.look(program_->pid(), now);
  if (const auto cpu = usage_.cpu()) (void)notes_.note("cpu", *cpu, now);
  if (const auto memory = usage_.memory()) (void)notes_.note("memory", *memory, now);
  if (const auto gpu = gpus_->take()) (void)notes_.note("gpu", gpu->busy, gpu->at);
}

/// A pool with shared fields has a program for them in each job, of which so many serve as the pool
/// has servers.
void MemberAgent::keep_shared(Clock::time_point now) {
  if (shared_ && shared_->poll_exit()) {
    say_("the server of the shared fields " + shared_->poll_exit()->to_string());
    shared_.reset();
  }
  if (shared_ || now < shared_at_) return;
  shared_at_ = now + kSharedAgain;
  if (access((options_.pool_dir + "/shared").c_str(), F_OK) != 0) return;
  auto child = Child::start(
      {.command = {helper_program("bellows-pool-shared"), options_.pool_dir, options_.host},
       .environment = own_environment(),
       .death_signal = SIGKILL});
  if (child) shared_ = std::move(*child);
  if (!child) say_(child.error().text);
}

void MemberAgent::end_shared() {
  const auto until = Clock::now() + kSharedEndsWithin;
  if (shared_) shared_->signal(SIGTERM);
  while (shared_ && !shared_->poll_exit() && Clock::now() < until) usleep(10'000);
}

Report MemberAgent::report(Clock::time_point now) const {
  Report report;
  report.set_job(options_.job);
  report.set_incarnation(incarnation_);
  report.set_node(options_.host);
  if (notes_.port != 0) report.set_address(fmt::format("{}:{}", options_.host, notes_.port));
  report.set_ready(notes_.ready);
  report.set_draining(ending_.begun);
  report.set_vote(notes_.vote);
  report.set_vote_sequence(notes_.vote_sequence);
  report.set_vote_age_ms(milliseconds_since(notes_.voted_at, now));
  report.set_ready_ms(ready_ms_);
  for (const auto& [name, noted] : notes_.metrics) {
    if (now - noted.at > kLongestKept) continue;
    Metric* const metric = report.add_metric();
    metric->set_name(name);
    metric->set_value(noted.value);
    metric->set_age_ms(milliseconds_since(noted.at, now));
  }
  return report;
}

MemberAgent::Clock::time_point MemberAgent::next_turn(Clock::time_point now) const {
  const bool awaits_port = options_.port != 0 && !notes_.ready;
  auto next = now + (awaits_port ? kLookForPort : kLook);
  if (notes_.has_news) next = std::min(next, send_at_);
  return std::min({next, look_at_, ending_.term_at, ending_.kill_at});
}

int MemberAgent::run() {
  while (!program_->poll_exit()) {
    const auto now = Clock::now();
    drive_end(now);
    look(now);
    keep_shared(now);
    // Each second at least: a keeper that was away is found again by that.
    if (now >= send_at_ + kLook || (notes_.has_news && now >= send_at_)) {
      notes_.has_news = false;
      // A keeper that is started again learns from it how long members take to start.
      if (notes_.ready && ready_ms_ == 0) ready_ms_ = milliseconds_since_1970();
      send_at_ = now + kBetweenReports;
      keeper_->send(report(now));
    }
    loop_.run_once(next_turn(Clock::now()));
  }
  end_shared();
  const ChildExit& exit = *program_->poll_exit();
  if (!exit.ok()) say_("the program " + exit.to_string());
  return exit.code();
}

}  // namespace bellows::pool
