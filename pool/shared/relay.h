// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

namespace bellows::pool {

/// A port of 127.0.0.1, and where what comes to it goes.
struct RelayPort {
  std::uint16_t port = 0;
  /// Asked for each connection: HOST, PORT. Called in the relay's thread.
  std::function<Result<std::pair<std::string, std::uint16_t>>()> target;
};

/// Passes connections on, in a thread of its own: etcd's peers must hear of each other even while
/// a copy is made. It sees only what TLS has encrypted. The destructor ends all connections.
class Relay {
 public:
  /// unavailable: a port is taken by somebody else. Two relays of one user may have the same port.
  static Result<std::unique_ptr<Relay>> start(std::vector<RelayPort> ports);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  ~Relay();

 private:
  Relay() = default;

  Fd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace bellows::pool
