// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// Does one thing after another in a thread of its own, as long as the disk takes for it.
class DiskWorker {
 public:
  using Work = std::function<Status()>;
  using Done = std::function<void(const Status&)>;

  static Result<std::unique_ptr<DiskWorker>> make();
  DiskWorker(const DiskWorker&) = delete;
  DiskWorker& operator=(const DiskWorker&) = delete;
  /// Waits for what is at work, and drops the rest.
  ~DiskWorker();

  void add(Work work, Done done);
  bool is_idle() const { return running_ == 0; }
  /// Readable when something is done.
  int event() const { return event_.get(); }
  /// Calls `done` of what is, in the caller's thread.
  void tell();

 private:
  DiskWorker() = default;
  void work();

  Fd event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Work, Done>> to_do_;
  std::vector<std::pair<Done, Status>> done_;
  std::size_t running_ = 0;  ///< of the caller's thread: not told yet
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace bellows
