// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "common/access.h"

namespace bellows {

/// Writes a job's log in a thread of its own, so that a slow file system delays nobody. Bounded
/// in memory, rate and size: lines beyond that are left out, and a line in the log says how many.
class LogWriter {
 public:
  static constexpr std::size_t kMostQueued = 8 << 20;
  static constexpr std::size_t kMostEachSecond = 32 << 20;
  static constexpr std::uint64_t kParts = 8;  ///< files that share the size

  /// `most_bytes` is for all files of the job; 0: nothing is written.
  LogWriter(std::string log_dir, std::uint32_t job, std::uint64_t most_bytes,
            Access access = Access::owner);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  /// What is added from now on goes into the file of this attempt.
  void begin(std::uint32_t restart, std::uint32_t attempt);
  /// Whole lines. Never blocks.
  void add(std::string lines);
  /// Waits until all is written, but not longer. No more is taken.
  void close(std::chrono::milliseconds limit);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace bellows
