// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// One change of a job's state: a line of CHECKPOINT_DIR/events.jsonl.
struct JobEvent {
  double time = 0;  ///< seconds since the epoch
  std::uint32_t job = 0;
  std::uint32_t restart = 0;  ///< Slurm's restart count
  std::uint32_t attempt = 0;  ///< start of the ranks within this restart, from 1
  std::string event;          ///< the state: QUEUED, DEPLOYING, PROCESSING, ...
  std::string cause;          ///< for a person
  std::uint32_t gpus = 0;
  std::vector<std::string> nodes;
  std::optional<std::uint64_t> step;  ///< newest committed step, if any

  std::string to_json() const;
  static Result<JobEvent> from_json(const std::string& line);
};

/// Seconds since the epoch, for JobEvent::time.
double wall_clock();

/// Appends whole lines with one write each, so that lines of several writers do not mix. Losing the
/// log never stops a job: callers show a failed append once and go on.
class EventLog {
 public:
  /// Opens DIR/events.jsonl for appending; the directory must exist.
  static Result<EventLog> open(const std::string& dir);
  Status append(const JobEvent& event);

 private:
  EventLog(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Fd fd_;
  std::string path_;
  bool torn_ = false;  ///< the last line was cut off
};

/// The last `most` events of job `id` in DIR/events.jsonl, oldest first. Lines that are not events
/// (a torn write) are left out. not_found: no such file.
Result<std::vector<JobEvent>> read_events(const std::string& dir, std::uint32_t id,
                                          std::size_t most);

}  // namespace bellows
