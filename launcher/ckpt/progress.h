// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "common/result.h"

namespace bellows {

/// From now on SIGINT, SIGTERM and SIGHUP are noted instead of ending the program, and a reader of
/// its output that has gone is not a signal, so code that writes files can clean up.
void note_interrupts();
bool interrupted();

/// How far long work has come, on standard error: a bar on a terminal, else a line now and then.
/// Safe for several threads.
class ProgressBar {
 public:
  enum class Style { automatic, quiet };

  explicit ProgressBar(Style style,
                       std::chrono::milliseconds line_every = std::chrono::seconds(10));
  ~ProgressBar() { end(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Begins a piece of work: "step 40", and its bytes. Ends the one before.
  void begin(std::string what, std::uint64_t total);
  /// So much more is done. unavailable: the user interrupted.
  Status add(std::uint64_t bytes);
  /// Takes the bar away. Other output may come now.
  void end();

 private:
  using Clock = std::chrono::steady_clock;

  void show(Clock::time_point now);

  std::mutex mutex_;
  bool quiet_;
  bool terminal_;
  Clock::duration line_every_;
  bool drawn_ = false;
  std::string what_;
  std::uint64_t total_ = 0;
  std::uint64_t done_ = 0;
  Clock::time_point began_;
  Clock::time_point shown_;
};

}  // namespace bellows
