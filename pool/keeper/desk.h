// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "common/result.h"
#include "pool/keeper/member_book.h"
#include "pool/wire/channel.h"
#include "pool/wire/pool.grpc.pb.h"

namespace bellows::pool {

/// What the desk asks its keeper, from threads of gRPC.
class DeskKeeper {
 public:
  virtual ~DeskKeeper() = default;
  /// False: it is no member.
  virtual bool report(const MemberReport& report) = 0;
  virtual void left(std::uint32_t job, std::uint64_t incarnation) = 0;
  virtual Pool show() = 0;
  virtual Result<Pool> change(const ChangeRequest& request) = 0;
};

/// The keeper's services: members, callers and commands speak to it. Any thread may use it.
class Desk {
 public:
  /// Listens at a port that the kernel chooses. `keeper` must outlive it. unavailable: it can't.
  static Result<std::unique_ptr<Desk>> open(DeskKeeper& keeper, const PoolKey& key);
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;
  virtual ~Desk() = default;

  virtual std::uint16_t port() const = 0;
  /// To all callers that watch.
  virtual void publish(const std::shared_ptr<const Members>& members) = 0;
  /// To the agent of a member; nothing where it is not connected.
  virtual void tell(std::uint32_t job, const Order& order) = 0;

 protected:
  Desk() = default;
};

}  // namespace bellows::pool
