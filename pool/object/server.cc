// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>

#include "common/fd.h"
#include "pool/include/bellows_object.h"
#include "pool/include/bellows_pool.h"
#include "pool/object/object_service.h"
#include "pool/object/pack.h"
#include "pool/wire/channel.h"

namespace bellows::pool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTickMs = 1000;
// From SIGTERM to SIGKILL Slurm lets 30 s pass (KillWait).
constexpr unsigned kTerminatedS = 25;
// Callers that have not heard yet that a member drains are told when they ask; then they are quiet.
constexpr std::chrono::seconds kQuiet{1};
constexpr std::chrono::milliseconds kLook{20};
// Callers' keepalive, which the default takes for abuse.
constexpr int kBetweenPingsMs = 5000;

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
}

/// Where SIGTERM, which Slurm sends to all processes of a job that must end, is written.
std::atomic<int> terminations = -1;

/// While it is there, SIGTERM drains.
class TermSignal {
 public:
  explicit TermSignal(int to) {
    terminations = to;
    struct sigaction told {};
    told.sa_handler = [](int) {
      const std::uint64_t one = 1;
      (void)!::write(terminations, &one, sizeof one);
    };
    told.sa_flags = SA_RESTART;
    ::sigaction(SIGTERM, &told, &before_);
  }
  ~TermSignal() { ::sigaction(SIGTERM, &before_, nullptr); }
  TermSignal(const TermSignal&) = delete;
  TermSignal& operator=(const TermSignal&) = delete;

 private:
  struct sigaction before_ {};
};

Failure unavailable(std::string text) {
  return {CallOutcome::unavailable, std::move(text), {}, {}};
}

}  // namespace

struct Server::State {
  ServerOptions options;
  ServedMethods methods;
  std::function<void(unsigned)> told = [](unsigned) {};
  std::function<int()> asked;
  Fd drain{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Fd term{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;
  unsigned seconds = 0;
  Clock::time_point deadline = Clock::time_point::max();
  std::unique_ptr<ObjectService> service;

  void begin_drain(unsigned within);
  Result<std::unique_ptr<grpc::Server>> start();
  void wait_for_drain(int orders);
  void tell() const;
  bool is_empty(const std::future<void>& hook) const;
  void empty();
};

void Server::State::begin_drain(unsigned within) {
  const std::lock_guard lock(mutex);
  seconds = within;
  deadline = std::min<Clock::time_point>(deadline, Clock::now() + std::chrono::seconds(within));
  if (service) service->drain();
  const std::uint64_t one = 1;
  (void)!::write(drain.get(), &one, sizeof one);
}

Result<std::unique_ptr<grpc::Server>> Server::State::start() {
  const auto key = read_key(variable("BELLOWS_POOL"));
  if (!key) return key.error();
  {
    const std::lock_guard lock(mutex);
    service = std::make_unique<ObjectService>(methods, variable("BELLOWS_POOL_INCARNATION"),
                                              static_cast<int>(options.limit));
  }
  grpc::ServerBuilder builder;
  // Each call has a thread; some more refuse what is above the limit.
  builder.SetResourceQuota(
      grpc::ResourceQuota("calls").SetMaxThreads(static_cast<int>(options.limit) + 16));
  builder.SetMaxReceiveMessageSize(static_cast<int>(kLargest));
  builder.SetMaxSendMessageSize(static_cast<int>(kLargest));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kBetweenPingsMs);
  int port = 0;
  builder.AddListeningPort(fmt::format("[::]:{}", options.port), server_credentials(*key), &port);
  builder.RegisterService(service.get());
  auto server = builder.BuildAndStart();
  if (!server || port == 0)
    return Error{ErrorKind::unavailable, fmt::format("port {} can't be had", options.port)};
  options.port = static_cast<std::uint16_t>(port);
  return server;
}

/// orders: where the agent's come, or -1.
void Server::State::wait_for_drain(int orders) {
  auto next = Clock::now();
  for (;;) {
    pollfd waiting[] = {{drain.get(), POLLIN, 0}, {orders, POLLIN, 0}, {term.get(), POLLIN, 0}};
    if (::poll(waiting, 3, kTickMs) > 0) {
      if (waiting[2].revents) begin_drain(kTerminatedS);
      if (waiting[2].revents || waiting[0].revents) return;
      bellows_pool_order order{};
      const int said = bellows_pool_next_order(orders, 0, &order);
      if (said == BELLOWS_POOL_ERR_UNAVAILABLE) orders = -1;
      if (said == BELLOWS_POOL_OK && order.drain) begin_drain(order.seconds);
    }
    if (Clock::now() < next) continue;
    next = Clock::now() + std::chrono::milliseconds(kTickMs);
    tell();
  }
}

void Server::State::tell() const {
  (void)bellows_pool_metric("bellows_calls", service->calls());
  const int change = asked ? asked() : 0;
  // A vote of nothing would be a wish to stay.
  if (change != 0) (void)bellows_pool_vote(change);
}

bool Server::State::is_empty(const std::future<void>& hook) const {
  return service->calls() == 0 && service->quiet() >= kQuiet &&
         hook.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void Server::State::empty() {
  std::promise<void> done;
  const auto hook = done.get_future();
  std::thread([told = told, within = seconds, done = std::move(done)]() mutable {
    told(within);
    done.set_value();
  }).detach();
  const auto begin = Clock::now();
  const auto over = [&] {
    const std::lock_guard lock(mutex);
    return Clock::now() >= deadline;
  };
  while (!over() && !(Clock::now() - begin >= kQuiet && is_empty(hook)))
    std::this_thread::sleep_for(kLook);
}

Server::Server(ServerOptions options) : state_(std::make_unique<State>()) {
  state_->options = options;
}
Server::~Server() = default;

void Server::add_work(std::string name, Work work, Runs runs, bool streams) {
  state_->methods[std::move(name)] = {
      .work = std::move(work), .idempotent = runs == Runs::again, .streams = streams};
}

void Server::on_drain(std::function<void(unsigned)> told) { state_->told = std::move(told); }
void Server::change_pool_size(std::function<int()> asked) { state_->asked = std::move(asked); }
void Server::drain(unsigned seconds) { state_->begin_drain(seconds); }

Answer<void> Server::serve() {
  auto started = state_->start();
  if (!started) return unavailable(started.error().text);
  const std::unique_ptr<grpc::Server> server = std::move(*started);
  Fd orders;
  const TermSignal signal(state_->term.get());
  if (bellows_pool_listen(state_->options.port) == BELLOWS_POOL_OK) {
    orders = Fd(bellows_pool_watch());
    (void)bellows_pool_ready();
  }
  state_->wait_for_drain(orders.get());
  state_->empty();
  server->Shutdown(std::chrono::system_clock::now());
  return std::monostate();
}

}  // namespace bellows::pool
