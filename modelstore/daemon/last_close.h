// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/event_loop.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// Closes descriptors on a thread of its own: who closes the last of a large memory has to wait
/// while its pages are freed, a second for some gigabytes.
class LastClose {
 public:
  /// `closed` gets the number of each that is done, in the loop's thread.
  static Result<std::unique_ptr<LastClose>> make(EventLoop& loop,
                                                 std::function<void(std::uint64_t)> closed);
  LastClose(const LastClose&) = delete;
  LastClose& operator=(const LastClose&) = delete;
  ~LastClose();

  /// 0: nobody is told.
  void close(Fd fd, std::uint64_t number);

 private:
  explicit LastClose(std::function<void(std::uint64_t)> closed) : closed_(std::move(closed)) {}
  void work();
  void tell();

  std::function<void(std::uint64_t)> closed_;
  Fd event_;
  EventLoop::Watch watch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Fd, std::uint64_t>> to_close_;
  std::vector<std::uint64_t> done_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace bellows
