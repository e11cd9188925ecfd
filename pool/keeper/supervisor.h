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

/// A program beside a keeper's work.
struct Helper {
  std::string name;
  std::vector<std::string> command;
  int in_fd = -1;  ///< becomes its standard input; the caller's
};

struct SupervisorOptions {
  std::function<int()> work;  ///< runs in a process of its own; its result is the exit code
  std::vector<Helper> helpers;
  std::function<void(const std::string&)> say;
};

/// The process above a keeper: starts it again at once when it is killed, without the queue, and
/// its helpers, which go on meanwhile. It has no threads and no gRPC.
class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  /// Ends what still runs: helpers have a few seconds for it.
  ~Supervisor();

  /// Until the work has ended by itself, or a signal ends all: its exit code.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  struct Running {
    std::optional<Child> child;
    Clock::time_point next;  ///< not to be started before
  };

  bool start_work();
  void start_helper(std::size_t number);
  void end_helpers();
  /// Nothing: it goes on.
  std::optional<int> look();
  bool too_many_deaths();

  const SupervisorOptions options_;
  pid_t work_ = -1;
  std::vector<Running> helpers_;  ///< in the order of the options
  std::vector<Clock::time_point> deaths_;
};

}  // namespace bellows::pool
