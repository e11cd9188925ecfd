// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/modelstore/hostile_server.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/text.h"

namespace bellows::model_test {
namespace {

constexpr int kLimitMs = 20'000;

HttpRequest parse(const std::string& head) {
  HttpRequest request;
  const auto lines = split(head, '\n');
  const auto words = split(trim(lines[0]), ' ');
  cr_assert_eq(words.size(), 3, "no request: %s", head.c_str());
  request.method = words[0];
  request.path = words[1];
  for (std::size_t i = 1; i < lines.size(); ++i)
    if (const auto colon = lines[i].find(':'); colon != std::string_view::npos)
      request.fields[to_lower(lines[i].substr(0, colon))] = trim(lines[i].substr(colon + 1));
  unsigned long first = 0, last = 0;
  if (std::sscanf(request.field("range").c_str(), "bytes=%lu-%lu", &first, &last) == 2) {
    request.begin = first;
    request.end = last + 1;
  }
  return request;
}

}  // namespace

std::string HttpRequest::field(const std::string& name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : found->second;
}

bool HttpPeer::send(std::string_view bytes) {
  while (!bytes.empty() && socket_) {
    const auto sent = tls_ ? SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size()))
                           : ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      close();
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return is_open();
}

void HttpPeer::stall() {
  char byte;
  pollfd p = {socket_.get(), POLLIN, 0};
  while (poll(&p, 1, kLimitMs) == 1 && recv(socket_.get(), &byte, 1, 0) > 0) {
  }
  close();
}

void HttpPeer::pause(int milliseconds) {
  pollfd p = {socket_.get(), POLLRDHUP, 0};
  poll(&p, 1, milliseconds);
}

void HttpPeer::reset() {
  const linger at_once = {1, 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

std::string HttpPeer::read_head() {
  std::string head;
  char byte;
  while (head.size() < 65'536) {
    const auto got = tls_ ? SSL_read(tls_.get(), &byte, 1) : recv(socket_.get(), &byte, 1, 0);
    if (got != 1) return "";
    head += byte;
    if (head.size() >= 4 && head.compare(head.size() - 4, 4, "\r\n\r\n") == 0) return head;
  }
  return "";
}

bool HttpPeer::accept_tls() {
  return !tls_ || (SSL_set_fd(tls_.get(), socket_.get()) == 1 && SSL_accept(tls_.get()) == 1);
}

HostileServer::HostileServer(Handler handler, SSL_CTX* tls)
    : handler_(std::move(handler)),
      tls_(tls),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  cr_assert_eq(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  cr_assert_eq(listen(listener_.get(), 64), 0);
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.sin_port);
  accepter_ = std::thread([this] { accept_all(); });
}

HostileServer::~HostileServer() {
  ending_ = true;
  shutdown(listener_.get(), SHUT_RDWR);
  accepter_.join();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const int fd : open_) shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
}

std::string HostileServer::url(const std::string& path) const {
  return (tls_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_) + path;
}

void HostileServer::accept_all() {
  while (!ending_) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) continue;
    ++connections_;
    const std::lock_guard<std::mutex> lock(mutex_);
    // A second descriptor, since the handler may close the first at any time.
    const int own = dup(socket.get());
    open_.push_back(own);
    threads_.emplace_back([this, own, fd = socket.release()] {
      HttpPeer peer(Fd(fd), tls_ ? SSL_new(tls_) : nullptr);
      serve(peer);
      peer.close();
      const std::lock_guard<std::mutex> done(mutex_);
      open_.erase(std::find(open_.begin(), open_.end(), own));
      ::close(own);
    });
  }
}

void HostileServer::serve(HttpPeer& peer) {
  // Of OpenSSL, which has no MSG_NOSIGNAL. The client's threads must do without.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  if (!peer.accept_tls()) return;
  while (peer.is_open() && !ending_) {
    const std::string head = peer.read_head();
    if (head.empty()) return;
    HttpRequest request = parse(head);
    request.number = ++requests_;
    handler_(request, peer);
  }
}

std::string head_of(const HttpRequest& request, std::uint64_t size,
                    const std::map<std::string, std::string>& changed, std::string_view status) {
  std::map<std::string, std::string> fields = {
      {"Content-Length", std::to_string(request.end - request.begin)},
      {"Content-Range", "bytes " + std::to_string(request.begin) + "-" +
                            std::to_string(request.end - 1) + "/" + std::to_string(size)},
      {"ETag", "\"v1\""}};
  for (const auto& [name, value] : changed) fields[name] = value;
  std::string head = "HTTP/1.1 " + std::string(status) + "\r\n";
  for (const auto& [name, value] : fields)
    if (!value.empty()) head += name + ": " + value + "\r\n";
  return head + "\r\n";
}

void answer(const HttpRequest& request, HttpPeer& peer, std::string_view file) {
  peer.send(head_of(request, file.size()));
  peer.send(file.substr(request.begin, request.end - request.begin));
}

}  // namespace bellows::model_test
