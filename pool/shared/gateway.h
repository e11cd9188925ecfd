// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/result.h"

namespace bellows::pool {

/// What came of a request to etcd's JSON gateway. A value.
struct GatewayReply {
  enum class Kind {
    done,      ///< `text` is the answer, an object of JSON
    refused,   ///< certainly not done; `code` is gRPC's, `text` says why
    not_sent,  ///< certainly not done: there is no connection
    lost,      ///< done or not, now or later: there is no answer of use
  };
  Kind kind = Kind::not_sent;
  int code = 0;
  std::string text;
};

/// Connections to the servers of a pool's etcd, over TLS with the pool's key. For one thread at a
/// time.
class Gateway {
 public:
  /// `pool`: its directory, with key.pem and cert.pem.
  explicit Gateway(std::string pool);
  Gateway(Gateway&&) noexcept;
  Gateway& operator=(Gateway&&) noexcept;
  ~Gateway();

  /// Sends a body to the server at HOST:PORT, once. `path` as "/v3/kv/txn".
  GatewayReply post(const std::string& endpoint, const std::string& path, const std::string& body,
                    std::chrono::milliseconds limit);

 private:
  struct Handle;
  std::string pool_;
  std::unique_ptr<Handle> handle_;
};

}  // namespace bellows::pool
