// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// What worker threads leave for the main thread to do.
class Completions {
 public:
  static Result<std::unique_ptr<Completions>> make();
  explicit Completions(Fd event) : event_(std::move(event)) {}

  /// Readable when there is something to run.
  int fd() const { return event_.get(); }
  /// Any thread.
  void add(std::function<void()> done);
  /// Main thread: runs all there is.
  void run();

 private:
  Fd event_;
  std::mutex mutex_;
  std::vector<std::function<void()>> ready_;
};

/// Threads that run jobs in the order they are posted; with one thread also one after the other.
class Workers {
 public:
  using Done = std::function<void()>;
  /// Runs on a worker; what it returns runs on the main thread.
  using Job = std::function<Done()>;

  Workers(std::size_t threads, Completions& completions);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// Drops jobs that have not begun, waits for those that have.
  ~Workers();

  void post(Job job);

 private:
  void work();

  Completions& completions_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace bellows
