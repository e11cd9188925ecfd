// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/fd.h"
#include "common/result.h"
#include "pool/wire/channel.h"
#include "pool/wire/pool.grpc.pb.h"

namespace bellows::pool {

/// An agent's connection to its pool's keeper, wherever that runs now. Never blocks: a keeper that
/// is away is looked for again.
class KeeperLine {
 public:
  /// `dir`: the pool's.
  static Result<std::unique_ptr<KeeperLine>> open(std::string dir, const PoolKey& key);
  KeeperLine(const KeeperLine&) = delete;
  KeeperLine& operator=(const KeeperLine&) = delete;
  /// Closes the connection; waits for gRPC's thread, not for the keeper.
  ~KeeperLine();

  /// Sends it, or replaces one that is not sent yet. Connects where nothing is connected.
  void send(const Report& report);
  /// Readable when there is an order, or the connection has ended.
  const Fd& bell() const { return bell_; }
  /// The newest order, once.
  std::optional<Order> take_order();
  /// Why the last connection ended, once.
  std::optional<std::string> take_trouble();

 private:
  class Call;
  struct Shared;

  KeeperLine(std::string dir, PoolKey key);
  bool connect();

  const std::string dir_;
  const PoolKey key_;
  Fd bell_;
  std::string address_;
  std::uint64_t term_ = 0;  ///< the highest that a keeper had
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<Call> call_;
};

}  // namespace bellows::pool
