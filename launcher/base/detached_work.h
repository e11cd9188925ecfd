// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace bellows {

/// What an owner shares with a thread that may hang in a dead file system: the owner asks it to
/// end, waits as long as it wants and leaves it behind. The base class of that shared state, which
/// `mutex` guards and which lives as long as either of them.
struct DetachedWork {
  std::mutex mutex;
  std::condition_variable changed;
  bool closing = false;  ///< the thread is to end when it has done what there is
  bool done = false;     ///< it has

  /// Runs `state->run()` in a thread of its own.
  template <typename State>
  static void start(std::shared_ptr<State> state) {
    std::thread([state = std::move(state)] {
      state->run();
      std::lock_guard lock(state->mutex);
      state->done = true;
      state->changed.notify_all();
    }).detach();
  }

  /// For the thread: waits until there is work or it is to end.
  template <typename HasWork>
  void wait_for_work(std::unique_lock<std::mutex>& lock, HasWork has_work) {
    changed.wait(lock, [&] { return closing || has_work(); });
  }

  /// For the owner: asks the thread to end, and waits for that no longer than `limit`.
  bool close(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds limit) {
    closing = true;
    changed.notify_all();
    return changed.wait_for(lock, limit, [this] { return done; });
  }
};

}  // namespace bellows
