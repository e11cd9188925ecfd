// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/fd.h"

namespace bellows::model_test {

struct FreeTls {
  void operator()(SSL* tls) const { SSL_free(tls); }
  void operator()(SSL_CTX* tls) const { SSL_CTX_free(tls); }
};

/// What a client asked.
struct HttpRequest {
  unsigned number = 0;  ///< from 1, over all connections
  std::string method;
  std::string path;
  std::map<std::string, std::string> fields;  ///< names in lower case
  std::uint64_t begin = 0, end = 0;           ///< of its range, behind the last byte

  std::string field(const std::string& name) const;
};

/// The connection that a request came by.
class HttpPeer {
 public:
  HttpPeer(Fd socket, SSL* tls) : socket_(std::move(socket)), tls_(tls) {}

  /// False once the client is gone.
  bool send(std::string_view bytes);
  /// Until the client goes away, or the server ends.
  void stall();
  /// A little later, so that the client reads what came before by itself.
  void pause(int milliseconds);
  /// As a machine does that is switched off and on.
  void reset();
  void close() { socket_.reset(); }

  bool is_open() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.get(); }
  /// "" at the connection's end.
  std::string read_head();
  bool accept_tls();

 private:
  Fd socket_;
  std::unique_ptr<SSL, FreeTls> tls_;
};

/// A server on the loopback that does whatever the test tells it, one thread a connection. Its end
/// ends all of them.
class HostileServer {
 public:
  using Handler = std::function<void(const HttpRequest&, HttpPeer&)>;

  /// `tls`: null for plain http; stays the caller's.
  explicit HostileServer(Handler handler, SSL_CTX* tls = nullptr);
  ~HostileServer();

  std::string url(const std::string& path = "/m") const;
  int port() const { return port_; }
  unsigned requests() const { return requests_; }
  unsigned connections() const { return connections_; }

 private:
  void accept_all();
  void serve(HttpPeer& peer);

  Handler handler_;
  SSL_CTX* tls_;
  Fd listener_;
  int port_ = 0;
  std::atomic<unsigned> requests_{0};
  std::atomic<unsigned> connections_{0};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::vector<int> open_;  ///< sockets of threads that serve
  std::vector<std::thread> threads_;
  std::thread accepter_;
};

/// The head of a right answer, with these fields in the place of those of the same names.
std::string head_of(const HttpRequest& request, std::uint64_t size,
                    const std::map<std::string, std::string>& changed = {},
                    std::string_view status = "206 Partial Content");
/// A right answer.
void answer(const HttpRequest& request, HttpPeer& peer, std::string_view file);

}  // namespace bellows::model_test
