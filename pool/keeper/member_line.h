// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <mutex>
#include <optional>

#include "pool/keeper/desk.h"

namespace bellows::pool {

/// The connection of a member's agent. gRPC calls it, and tells it when it is over.
class MemberLine final : public grpc::ServerBidiReactor<Report, Order> {
 public:
  /// `over` is called last, with this: it deletes it.
  MemberLine(DeskKeeper& keeper, std::function<void(MemberLine*)> over);

  /// An order that is not sent yet is replaced.
  void tell(const Order& order);
  /// 0: it has not said so yet.
  std::uint32_t job() const;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  bool is_the_same(const MemberReport& report) const;
  void finish(const grpc::Status& status);
  void write_next();

  DeskKeeper& keeper_;
  const std::function<void(MemberLine*)> over_;
  Report report_;
  mutable std::mutex mutex_;  ///< of all below
  std::uint32_t job_ = 0;
  std::uint64_t incarnation_ = 0;
  std::optional<Order> next_;
  Order order_;
  bool writes_ = false;
  bool finished_ = false;
};

}  // namespace bellows::pool
