// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/child.h"
#include "common/event_loop.h"
#include "modelstore/daemon/last_close.h"

namespace bellows {

/// Closes memory of GPUs, each in a process of its own: a close that hangs in the driver keeps no
/// other waiting, and a daemon that ends meanwhile leaves nothing in the way of its successor, as a
/// thread would.
class GpuCloses {
 public:
  /// `program`: bellows-model-gpu. `closed` gets the number of each that is done, in the loop's
  /// thread.
  static Result<std::unique_ptr<GpuCloses>> make(EventLoop& loop, std::string program,
                                                 std::function<void(std::uint64_t)> closed);

  /// Nobody else has it whom this process may have to wait for.
  void close(Fd memory, std::uint64_t number);

 private:
  struct Closing {
    explicit Closing(Child started) : child(std::move(started)) {}
    Child child;
    Fd process;
    EventLoop::Watch watch;
  };

  GpuCloses(EventLoop& loop, std::string program, std::function<void(std::uint64_t)> closed)
      : loop_(loop), program_(std::move(program)), closed_(std::move(closed)) {}
  Status start(const Fd& memory, std::uint64_t number);
  void on_exit(std::uint64_t number);

  EventLoop& loop_;
  const std::string program_;
  std::function<void(std::uint64_t)> closed_;
  std::map<std::uint64_t, Closing> closing_;
  std::unique_ptr<LastClose> without_process_;  ///< where none can be had
};

}  // namespace bellows
