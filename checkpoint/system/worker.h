// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// What a rank is told where an allocation failed.
Error no_memory();

/// What a worker is to do, and what then happens on the main thread.
struct Task {
  std::function<void()> work;
  /// Runs on the main thread in any case: an error says why the work was not done to its end.
  std::function<void(const Status&)> finish;
  std::exception_ptr thrown{};
};

/// What worker threads leave for the main thread to do.
class Completions {
 public:
  static Result<std::unique_ptr<Completions>> make();
  explicit Completions(Fd event) : event_(std::move(event)) {}

  /// Readable when there is something to run.
  int fd() const { return event_.get(); }
  /// Any thread. Takes tasks without a need of memory.
  void add(std::list<Task> tasks);
  /// Main thread: finishes all there is.
  void run();

 private:
  Fd event_;
  std::mutex mutex_;
  std::list<Task> ready_;
};

/// Threads that do tasks in the order they are posted; with one thread also one after the other.
class Workers {
 public:
  Workers(std::size_t threads, Completions& completions);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// Drops tasks that have not begun, waits for those that have.
  ~Workers();

  /// All that the worker needs for itself is there when this returns: work that finds no memory is
  /// finished all the same.
  void post(Task task);

 private:
  void work();

  Completions& completions_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Task> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace bellows
