// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "common/result.h"

namespace bellows::pool {

/// The key of a pool and the certificate that it signed: root, server's and client's at once, so
/// whoever can read the key is in the pool. A value.
struct PoolKey {
  std::string key;          ///< PEM
  std::string certificate;  ///< PEM
};

/// Makes a new pair. internal: libcrypto refuses.
Result<PoolKey> make_key();
/// Reads DIR/key.pem and DIR/cert.pem. denied: this user is not in the pool.
Result<PoolKey> read_key(const std::string& dir);

/// Both sides show the certificate and ask for it.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const PoolKey& key);
/// A channel to a process of the pool at HOST:PORT, wherever that is.
std::shared_ptr<grpc::Channel> open_channel(const std::string& address, const PoolKey& key);

}  // namespace bellows::pool
