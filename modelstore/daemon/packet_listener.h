// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/event_loop.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// A listening SOCK_SEQPACKET socket in the loop. When descriptors run out it stays ready, so it is
/// left alone for a while: the loop must not spin.
class PacketListener {
 public:
  using Time = EventLoop::Clock::time_point;

  /// invalid: it is no such socket. `ready` calls accept.
  Status listen(EventLoop& loop, Fd socket, std::function<void()> ready);
  int fd() const { return socket_.get(); }

  /// None: there was none, or there are no descriptors for it now.
  Fd accept();
  /// Looks again after a pause, and gives the time when to call this again.
  Time tick(Time now);

 private:
  Status watch();

  EventLoop* loop_ = nullptr;
  std::function<void()> ready_;
  Fd socket_;
  EventLoop::Watch watch_;
  Time paused_until_ = Time::max();
};

}  // namespace bellows
