// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "jobsubmit/policy.h"

namespace bellows {

/// Keeps the policy file's newest readable content at hand. A thread of its own looks at the file
/// each `period` (also on network file systems, where inotify says nothing), reads and parses it
/// there, and swaps it in whole; callers never wait for a file. A bad or missing file leaves the
/// last good policy in force. Any number of threads may call current().
class PolicyWatcher {
 public:
  struct State {
    std::shared_ptr<const Policy> policy;  ///< null: none was ever read
    std::string problem;                   ///< why the newest file is not in force; empty: it is
  };
  /// Called from the watcher's thread (and once from the constructor) at each change of the file:
  /// with an empty problem after a good read.
  using Report = std::function<void(const std::string& path, const std::string& problem)>;

  /// Reads once before it returns. Never fails: a missing or bad file is a State.
  PolicyWatcher(std::string path, std::chrono::milliseconds period, Report report);
  /// Joins the thread.
  ~PolicyWatcher();
  PolicyWatcher(const PolicyWatcher&) = delete;
  PolicyWatcher& operator=(const PolicyWatcher&) = delete;

  State current() const;

 private:
  void look();
  void run();
  void read();

  const std::string path_;
  const std::chrono::milliseconds period_;
  const Report report_;
  std::string seen_;  ///< identity of the file last read; the watcher's thread only

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  State state_;
  std::thread thread_;
};

}  // namespace bellows
