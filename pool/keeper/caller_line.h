// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <mutex>

#include "pool/wire/pool.grpc.pb.h"

namespace bellows::pool {

/// A caller that watches who the members are. gRPC calls it, and tells it when it is over.
class CallerLine final : public grpc::ServerWriteReactor<Members> {
 public:
  /// `over` is called last, with this: it deletes it.
  explicit CallerLine(std::function<void(CallerLine*)> over) : over_(std::move(over)) {}

  /// A list that is not sent yet is replaced.
  void publish(std::shared_ptr<const Members> members);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { over_(this); }

 private:
  void finish_locked();
  void write_next();

  const std::function<void(CallerLine*)> over_;
  std::mutex mutex_;  ///< of all below
  std::shared_ptr<const Members> next_;
  std::shared_ptr<const Members> sent_;
  bool writes_ = false;
  bool finished_ = false;
};

}  // namespace bellows::pool
