// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/event_loop.h"
#include "modelstore/disktier/disk_worker.h"

namespace bellows {

/// A file for node_exporter's textfile collector, which is written anew every 15 seconds, on a
/// thread of its own: a file system that hangs must not stop the daemon. Who reads it finds a whole
/// text.
class MetricsFile {
 public:
  using Time = EventLoop::Clock::time_point;
  using Say = std::function<void(const std::string&)>;

  static Result<std::unique_ptr<MetricsFile>> make(EventLoop& loop, std::string path,
                                                   std::function<std::string()> text, Say say);
  /// Gives the time when to call again.
  Time tick(Time now);

 private:
  MetricsFile(std::string path, std::function<std::string()> text, Say say)
      : path_(std::move(path)), text_(std::move(text)), say_(std::move(say)) {}
  void written(const Status& status);

  std::string path_;
  std::function<std::string()> text_;
  Say say_;
  std::string complaint_;  ///< the last: it is not said again and again
  Time next_{};
  std::unique_ptr<DiskWorker> worker_;
  EventLoop::Watch watch_;
};

}  // namespace bellows
