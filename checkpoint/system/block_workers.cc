// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/system/block_workers.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace bellows {
namespace {

// A disk wants a few requests at once, and hashing continues while others wait for it.
constexpr std::uint64_t kThreads = 4;

/// The state the threads share.
class Crew {
 public:
  Crew(std::uint64_t count, std::size_t buffer_bytes, const BlockWork& work)
      : count_(count), buffer_bytes_(buffer_bytes), work_(work) {}

  void run() noexcept {
    try {
      AlignedBuffer buffer(buffer_bytes_);
      if (!buffer.data()) throw std::bad_alloc();
      while (!failed_) {
        const std::uint64_t number = next_++;
        if (number >= count_) return;
        if (auto status = work_(number, buffer.data()); !status) fail(std::move(status));
      }
    } catch (...) {
      // Kept as it is: there may be no memory for a sentence now.
      std::lock_guard lock(mutex_);
      if (!thrown_) thrown_ = std::current_exception();
      failed_ = true;
    }
  }

  /// Once all threads have ended. `what`: names the work.
  Status result(const std::string& what) const {
    if (!first_.ok() || !thrown_) return first_;
    try {
      std::rethrow_exception(thrown_);
    } catch (const std::exception& e) {
      return Error{ErrorKind::unavailable, what + ": " + e.what()};
    }
  }

 private:
  void fail(Status status) {
    std::lock_guard lock(mutex_);
    if (first_.ok()) first_ = std::move(status);
    failed_ = true;
  }

  const std::uint64_t count_;
  const std::size_t buffer_bytes_;
  const BlockWork& work_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  Status first_;
  std::exception_ptr thrown_;
};

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t bytes)
    : data_(static_cast<unsigned char*>(
          std::aligned_alloc(kSector, (bytes + kSector - 1) / kSector * kSector))) {}

AlignedBuffer::~AlignedBuffer() { std::free(data_); }

Status work_on_blocks(std::uint64_t count, std::size_t buffer_bytes, const std::string& what,
                      const BlockWork& work) {
  Crew crew(count, buffer_bytes, work);
  std::vector<std::thread> helpers;
  try {
    while (helpers.size() + 1 < std::min(count, kThreads)) {
      helpers.emplace_back([&crew] { crew.run(); });
    }
  } catch (const std::exception&) {
    // Fewer threads do it too.
  }
  crew.run();
  for (std::thread& helper : helpers) helper.join();
  return crew.result(what);
}

}  // namespace bellows
