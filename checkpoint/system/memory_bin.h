// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace bellows {

class SharedMemory;

/// Frees shared memory on a thread of its own: gigabytes take a while, and an agent's main thread
/// has ranks to answer. Safe for several threads.
class MemoryBin {
 public:
  MemoryBin();
  MemoryBin(const MemoryBin&) = delete;
  MemoryBin& operator=(const MemoryBin&) = delete;
  /// Waits until all is freed.
  ~MemoryBin();

  /// Takes over what its last owner has left. Needs no memory itself.
  void take(SharedMemory* memory) noexcept;
  /// For a caller that is about to allocate memory: everything taken over before is freed when this
  /// returns.
  void wait_until_empty();
  /// Of what is not freed yet.
  std::uint64_t bytes();

 private:
  void empty();

  std::mutex mutex_;
  std::condition_variable changed_;
  SharedMemory* first_ = nullptr;
  std::uint64_t bytes_ = 0;
  bool ending_ = false;
  std::thread thread_;  ///< last: it uses what is above
};

}  // namespace bellows
