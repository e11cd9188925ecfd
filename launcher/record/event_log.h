// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/access.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// What an event means beyond its state, for code that makes decisions. `cause` is only for people.
enum class EventNote {
  none,
  saving,           ///< a save of a step began
  committed,        ///< a step was committed
  halting,          ///< a stop began after which the job is to be held
  ranks_go_on,      ///< a stop was abandoned
  fruitless,        ///< this run ends without a new checkpoint
  resumed,          ///< somebody released the job
  halted_in_queue,  ///< somebody held the job while it waited
};

/// One change of a job's state: a line of CHECKPOINT_DIR/events.jsonl. EVENTS.md describes the
/// file.
struct JobEvent {
  double time = 0;  ///< seconds since the epoch
  std::uint32_t job = 0;
  std::uint32_t restart = 0;  ///< Slurm's restart count
  std::uint32_t attempt = 0;  ///< start of the ranks within this restart, from 1
  std::string event;          ///< the state: QUEUED, DEPLOYING, PROCESSING, ...
  std::string cause;          ///< for a person
  std::uint32_t gpus = 0;
  std::vector<std::string> nodes;
  std::optional<std::uint64_t> step = std::nullopt;     ///< newest committed step, if any
  std::optional<std::uint64_t> reached = std::nullopt;  ///< newest step heard of, if known
  EventNote note = EventNote::none;

  std::string to_json() const;
  static Result<JobEvent> from_json(std::string_view text);
  /// The JSON with its checksum: what the file holds.
  std::string to_line() const;
  /// corrupt: not an event, or its checksum is missing or does not match.
  static Result<JobEvent> from_line(std::string_view line);
};

/// Seconds since the epoch, for JobEvent::time.
double wall_clock();

/// Appends whole lines with one write each, so that lines of several writers do not mix. Losing the
/// log never stops a job: callers show a failed append once and continue.
class EventLog {
 public:
  /// Opens DIR/events.jsonl for appending; the directory must exist. denied: it is not
  /// `user`'s. Root, which reports to a job's user what it did, opens only plain files and creates
  /// none.
  static Result<EventLog> open(const std::string& dir, Access access = Access::owner,
                               uid_t user = geteuid());
  Status append(const JobEvent& event);

 private:
  EventLog(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  bool ends_in_torn_line() const;
  Fd fd_;
  std::string path_;
};

/// What the text of an event file holds of one job, oldest first.
struct EventLines {
  std::vector<JobEvent> events;
  std::size_t damaged = 0;  ///< lines of any job that are no events; each was skipped
  bool cut = false;         ///< the file was too long: what stands before its end was not read
};

/// A damaged line does not hide a whole one that was written behind it. What follows the last
/// newline is still being written, and left out.
EventLines parse_events(std::string_view text, std::uint32_t job);

/// All events of a job in DIR/events.jsonl, or those in its last kLongestHistory bytes. not_found:
/// no such file.
constexpr std::size_t kLongestHistory = 64 << 20;
Result<EventLines> read_history(const std::string& dir, std::uint32_t job,
                                std::size_t longest = kLongestHistory);

/// The last `most` events of a job, from the end of the file only.
Result<std::vector<JobEvent>> read_events(const std::string& dir, std::uint32_t job,
                                          std::size_t most);

}  // namespace bellows
