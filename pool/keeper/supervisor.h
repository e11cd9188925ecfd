// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/child.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows::pool {

struct SupervisorOptions {
  std::function<int()> work;       ///< runs in a process of its own; its result is the exit code
  std::vector<std::string> proxy;  ///< a command beside it; empty: none
  int proxy_in = -1;               ///< becomes the command's standard input; the caller's
  std::function<void(const std::string&)> say;
};

/// The process above a keeper: starts it again at once when it is killed, without the queue, and
/// keeps the proxy, which goes on meanwhile. It has no threads and no gRPC.
class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options) : options_(std::move(options)) {}
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  /// Kills what still runs.
  ~Supervisor();

  /// Until the work has ended by itself, or a signal ends all: its exit code.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  bool start_work();
  bool start_proxy();
  /// Nothing: it goes on.
  std::optional<int> look();
  bool too_many_deaths();

  const SupervisorOptions options_;
  pid_t work_ = -1;
  std::optional<Child> proxy_;
  Clock::time_point proxy_at_;
  std::vector<Clock::time_point> deaths_;
};

}  // namespace bellows::pool
