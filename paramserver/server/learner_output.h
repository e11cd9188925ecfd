// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/event_loop.h"
#include "common/fd.h"

namespace bellows::ps {

/// Passes on what a learner writes to one of its streams, each line with a label in front. Whoever
/// does not take it holds up the learner, but not the caller.
class LearnerOutput {
 public:
  /// `from`: non-blocking. `to` stays the caller's.
  LearnerOutput(EventLoop& loop, Fd from, int to, std::string label);
  LearnerOutput(const LearnerOutput&) = delete;
  LearnerOutput& operator=(const LearnerOutput&) = delete;

  /// Passes on what waits. To be called again soon while this is true: not all was taken.
  bool flush();
  /// The learner has ended: reads what it has left, and no more. What is not taken yet stays.
  void finish();

 private:
  void watch();
  void on_data();
  bool read_some();
  void add(const char* data, std::size_t size);
  void end_line();

  EventLoop& loop_;
  Fd from_;
  int to_;
  std::string label_;
  std::string line_;     ///< the beginning of one
  std::string waiting_;  ///< whole lines with labels
  EventLoop::Watch watch_;
  bool held_ = false;  ///< nothing is read until what waits is taken
};

}  // namespace bellows::ps
