// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/child.h"
#include "common/fd.h"
#include "common/result.h"
#include "pool/shared/gateway.h"
#include "pool/shared/relay.h"
#include "pool/shared/seats.h"
#include "pool/shared/start_choice.h"

namespace bellows::pool {

struct SharedServerOptions {
  std::string pool;  ///< its directory
  std::string host;  ///< by which other nodes find this one
  std::chrono::milliseconds snapshot_each{60'000};
  std::function<void(const std::string&)> say;  ///< what people should know
};

/// Runs one server of a pool's etcd: the first for which nobody runs. It starts etcd again when it
/// has ended, takes the place of one whose data is gone, and copies all fields each minute. The
/// destructor ends etcd and gives the place back.
class SharedServer {
 public:
  using Clock = std::chrono::steady_clock;

  /// busy: all run already.
  static Result<std::unique_ptr<SharedServer>> claim(SharedServerOptions options);
  SharedServer(const SharedServer&) = delete;
  SharedServer& operator=(const SharedServer&) = delete;
  ~SharedServer();

  unsigned seat() const { return seat_; }
  /// Does what is to be done now; to be called each second or so. May take some seconds.
  void tick(Clock::time_point now);
  /// Copies all fields, and ends etcd. For the end of a pool and before a node is left.
  void stop();

 private:
  SharedServer(SharedServerOptions options, SeatPlan plan, unsigned seat, Fd lock);

  Status start_relay();
  SeatFacts facts();
  Status start(Clock::time_point now);
  Status start_etcd(bool joins, Clock::time_point now);
  Status rejoin();
  Status set_aside();
  Status restore();
  void look(Clock::time_point now);
  bool answers(const std::string& endpoint);
  Result<std::string> ask_others(const std::string& path, const std::string& body);
  Status snapshot();
  void complain(const Status& status);

  const SharedServerOptions options_;
  const SeatFiles files_;
  const SeatPlan plan_;
  const unsigned seat_;
  Fd lock_;
  Gateway gateway_;
  std::unique_ptr<Relay> relay_;
  std::optional<Child> etcd_;
  SeatAddress address_;
  Clock::time_point started_, next_start_, next_look_, next_snapshot_;
  unsigned early_ends_ = 0;  // in a row
  std::string said_;
};

}  // namespace bellows::pool
