// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

namespace bellows::container {

/// The steps of a container's set-up, in the order in which they begin: for time limits, messages
/// ("container: mounting the image: ...") and --container-verbose.
class Phases {
 public:
  struct Entry {
    const char* name;
    std::chrono::nanoseconds took{0};
  };
  /// Called at each phase's beginning: a watchdog's clock starts, a test may stop the process.
  using Observer = std::function<void(const char* name)>;

  explicit Phases(Observer observer = {}) : observer_(std::move(observer)) {}

  /// One more observer, until the next call.
  void watch(Observer watcher) { watcher_ = std::move(watcher); }

  /// Ends the phase before and begins one; `name` is a literal such as "opening the image".
  void begin(const char* name);
  void end();
  const char* current() const { return entries_.empty() ? "" : entries_.back().name; }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  using Clock = std::chrono::steady_clock;

  Observer observer_;
  Observer watcher_;
  std::vector<Entry> entries_;
  Clock::time_point began_{};
  bool running_ = false;
};

}  // namespace bellows::container
