// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// Calls handlers when descriptors are ready. Handlers may add and end watches, their own too.
class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Handler = std::function<void(std::uint32_t events)>;

  /// Ends a watch, which must happen before its descriptor is closed: another process may hold the
  /// same open file, and the kernel would report it for ever.
  class Watch {
   public:
    Watch() = default;
    Watch(EventLoop* loop, int fd, std::uint64_t key) : loop_(loop), fd_(fd), key_(key) {}
    Watch(Watch&& other) noexcept { *this = std::move(other); }
    Watch& operator=(Watch&& other) noexcept;
    ~Watch() { end(); }
    void end();

   private:
    EventLoop* loop_ = nullptr;
    int fd_ = -1;
    std::uint64_t key_ = 0;
  };

  static Result<std::unique_ptr<EventLoop>> make();

  /// `events` as epoll has them. The descriptor stays the caller's.
  Result<Watch> watch(int fd, std::uint32_t events, Handler handler);
  /// Waits until `until`, or for something to be ready, and calls its handlers.
  void run_once(Clock::time_point until);

 private:
  explicit EventLoop(Fd epoll) : epoll_(std::move(epoll)) {}

  Fd epoll_;
  /// By number: what is ready for a watch that another handler ended is dropped.
  std::map<std::uint64_t, std::shared_ptr<Handler>> handlers_;
  std::uint64_t next_key_ = 1;
};

}  // namespace bellows
