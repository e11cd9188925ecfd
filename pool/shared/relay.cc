// SPDX-License-Identifier: Apache-2.0
#include "pool/shared/relay.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <list>

namespace bellows::pool {
namespace {

constexpr std::size_t kMostBuffered = 256 * 1024;
constexpr std::size_t kMostConnections = 256;

/// One direction of a connection.
struct Flow {
  std::string waiting;
  bool ended = false;   // its source has sent all
  bool passed = false;  // and the other side knows
};

struct Connection {
  Fd near, far;
  bool connecting = true;
  Flow out, back;
};

Result<Fd> listen_here(std::uint16_t port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error("open", "a socket");
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0 ||
      setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0)
    return Error{ErrorKind::unavailable,
                 fmt::format("127.0.0.1:{}, which the pool's etcd needs on this node: {}", port,
                             std::strerror(errno))};
  return fd;
}

void send_at_once(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Has begun to connect; none if that can't be.
Fd connect_to(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;  // etcd listens at all addresses of this family
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  for (const addrinfo* one = found; one; one = one->ai_next) {
    Fd fd(socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) continue;
    send_at_once(fd.get());
    if (connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0 || errno == EINPROGRESS) return fd;
  }
  return {};
}

/// False: the connection is broken.
bool take(int from, Flow& flow) {
  char bytes[64 * 1024];
  const ssize_t count = recv(from, bytes, sizeof bytes, 0);
  if (count > 0) flow.waiting.append(bytes, static_cast<std::size_t>(count));
  if (count == 0) flow.ended = true;
  return count >= 0 || errno == EAGAIN || errno == EINTR;
}

bool give(int to, Flow& flow) {
  if (!flow.waiting.empty()) {
    const ssize_t count = send(to, flow.waiting.data(), flow.waiting.size(), MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    flow.waiting.erase(0, static_cast<std::size_t>(count));
  }
  if (flow.waiting.empty() && flow.ended && !flow.passed) {
    flow.passed = true;
    shutdown(to, SHUT_WR);
  }
  return true;
}

short wanted(const Flow& in, const Flow& out) {
  const bool may_take = !in.ended && in.waiting.size() < kMostBuffered;
  return static_cast<short>((may_take ? POLLIN : 0) | (out.waiting.empty() ? 0 : POLLOUT));
}

/// Without any events poll would still report a hang-up, again and again.
pollfd watched(int fd, short events) { return {events ? fd : -1, events, 0}; }

/// False: it is over.
bool serve(Connection& connection, short near, short far) {
  const short broken = POLLERR | POLLNVAL;
  if ((near | far) & broken) return false;
  if (connection.connecting) {
    if (!(far & (POLLOUT | POLLHUP))) return true;
    connection.connecting = false;
  }
  if ((near & (POLLIN | POLLHUP)) && !take(connection.near.get(), connection.out)) return false;
  if ((far & (POLLIN | POLLHUP)) && !take(connection.far.get(), connection.back)) return false;
  if (!give(connection.far.get(), connection.out)) return false;
  if (!give(connection.near.get(), connection.back)) return false;
  return !(connection.out.passed && connection.back.passed);
}

class RelayThread {
 public:
  RelayThread(std::vector<RelayPort> ports, std::vector<Fd> listeners, int stop)
      : ports_(std::move(ports)), listeners_(std::move(listeners)), stop_(stop) {}

  void run() {
    while (true) {
      std::vector<pollfd> waiting{{stop_, POLLIN, 0}};
      const bool is_full = connections_.size() >= kMostConnections;
      for (const auto& listener : listeners_)
        waiting.push_back({is_full ? -1 : listener.get(), POLLIN, 0});
      for (const auto& one : connections_) {
        waiting.push_back(watched(one.near.get(), wanted(one.out, one.back)));
        waiting.push_back(
            watched(one.far.get(), one.connecting ? short{POLLOUT} : wanted(one.back, one.out)));
      }
      if (poll(waiting.data(), waiting.size(), -1) < 0) continue;
      if (waiting[0].revents) return;
      std::size_t at = 1 + listeners_.size();
      for (auto one = connections_.begin(); one != connections_.end(); at += 2) {
        if (serve(*one, waiting[at].revents, waiting[at + 1].revents))
          ++one;
        else
          one = connections_.erase(one);
      }
      for (std::size_t i = 0; i < listeners_.size(); ++i)
        if (waiting[1 + i].revents) accept_at(i);
    }
  }

 private:
  void accept_at(std::size_t index) {
    Fd near(accept4(listeners_[index].get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!near) return;
    send_at_once(near.get());
    const auto target = ports_[index].target();
    if (!target) return;
    Fd far = connect_to(target.operator*().first, target.operator*().second);
    if (!far) return;
    connections_.push_back({});
    connections_.back().near = std::move(near);
    connections_.back().far = std::move(far);
  }

  const std::vector<RelayPort> ports_;
  const std::vector<Fd> listeners_;
  const int stop_;
  std::list<Connection> connections_;
};

}  // namespace

Result<std::unique_ptr<Relay>> Relay::start(std::vector<RelayPort> ports) {
  std::vector<Fd> listeners;
  for (const auto& one : ports) {
    auto listener = listen_here(one.port);
    if (!listener) return listener.error();
    listeners.push_back(std::move(*listener));
  }
  std::unique_ptr<Relay> relay(new Relay);
  relay->stop_.reset(eventfd(0, EFD_CLOEXEC));
  if (!relay->stop_) return errno_error("open", "an eventfd");
  auto work =
      std::make_shared<RelayThread>(std::move(ports), std::move(listeners), relay->stop_.get());
  relay->thread_ = std::thread([work] { work->run(); });
  return relay;
}

Relay::~Relay() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  while (write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
}

}  // namespace bellows::pool
