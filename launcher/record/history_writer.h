// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "launcher/record/event_log.h"

namespace bellows {

/// Appends a launcher's events in a thread of its own. A file system that hangs holds up that
/// thread only; lines that a full or read-only file system does not accept are kept and tried again
/// each second, so that the history later shows that problem too.
class HistoryWriter {
 public:
  /// Of the lines that wait; the oldest are dropped for more.
  static constexpr std::size_t kMostKept = 1000;

  /// The directory of the event file, which is opened for each batch of lines: a file system that
  /// comes back may be a new one.
  explicit HistoryWriter(std::string dir, Access access = Access::owner);
  ~HistoryWriter();
  HistoryWriter(const HistoryWriter&) = delete;
  HistoryWriter& operator=(const HistoryWriter&) = delete;

  /// Waits a moment for the line to be written, unless the file system is known to be in trouble.
  void add(const JobEvent& event);
  /// Why lines wait, or that they wait no more; once for each trouble.
  std::optional<std::string> news();
  /// Whether the last try to write went well.
  bool well() const;
  /// Waits until all is written, but no longer. How many events are not; no more are taken.
  std::size_t close(std::chrono::milliseconds limit);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace bellows
