// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/client_context.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "pool/object/targets.h"

namespace bellows::pool {

/// Follows the keeper, which may move, in a thread of its own. While there is none, what it said
/// last stands.
class Watch {
 public:
  Watch(std::string dir, PoolKey key, Targets& targets);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  void run();
  void follow(const std::string& address);

  const std::string dir_;
  const PoolKey key_;
  Targets& targets_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  grpc::ClientContext* call_ = nullptr;
  std::thread thread_;
};

}  // namespace bellows::pool
