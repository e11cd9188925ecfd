// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
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

  /// Ends the phase before and begins one; `name` is a literal such as "mounting the image".
  void begin(const char* name);
  void end();
  /// What was mounted, and what is odd about the host: for --container-verbose, beside the times.
  void note(std::string text) { notes_.push_back(std::move(text)); }
  const std::vector<std::string>& notes() const { return notes_; }
  /// What the user should know though all went well.
  void remark(std::string text) { remarks_.push_back(std::move(text)); }
  const std::vector<std::string>& remarks() const { return remarks_; }
  const char* current() const { return entries_.empty() ? "" : entries_.back().name; }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  using Clock = std::chrono::steady_clock;

  Observer observer_;
  Observer watcher_;
  std::vector<Entry> entries_;
  std::vector<std::string> notes_;
  std::vector<std::string> remarks_;
  Clock::time_point began_{};
  bool running_ = false;
};

/// The sentence for who started the task: `phase`, `why`, and after it what to do. A `why` with a
/// fix of its own, which follows a semicolon as in all our texts, stays as it is; errno's has none.
std::string refusal(std::string_view phase, std::string_view why);

}  // namespace bellows::container
