// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/access.h"
#include "common/result.h"

namespace bellows {

/// How the training of a job of kind ps went a moment ago. A value.
struct ServerRecord {
  double time = 0;  ///< seconds since the epoch
  std::uint32_t job = 0;
  std::uint32_t restart = 0;         ///< Slurm's restart count
  std::uint64_t learners = 0;        ///< that take part
  std::uint64_t updates = 0;         ///< since the server's start
  double updates_per_second = 0;     ///< over the last seconds
  double staleness = 0;              ///< in updates: the mean over the last seconds
  std::uint64_t most_staleness = 0;  ///< of one gradient, since the server's start

  bool operator==(const ServerRecord&) const = default;

  /// Whether it is of this run of the job, and not older than thirty seconds. `now`: as `time`.
  bool tells_of(std::uint32_t job_id, std::uint32_t restarts, double now) const;

  std::string to_json() const;
  /// corrupt: says what is wrong with the text.
  static Result<ServerRecord> parse(std::string_view text);

  /// CHECKPOINT_DIR/server.json, as a whole.
  Status write(const std::string& checkpoint_dir, Access access) const;
  /// Nothing: there is none that can be read.
  static std::optional<ServerRecord> read(const std::string& checkpoint_dir);

  /// "2 learners, 812 updates/s, staleness 0.9 (at most 3)"
  std::string to_string() const;
};

}  // namespace bellows
