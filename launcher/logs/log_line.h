// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows {

/// A line of CHECKPOINT_DIR/logs/JOB.RESTART.ATTEMPT.PART.log: what a rank, or srun or the launcher
/// itself, wrote, and when.
struct LogLine {
  enum class Stream { out, err, run };
  double time = 0;
  std::optional<std::uint32_t> rank = std::nullopt;  ///< none: of srun or the launcher
  Stream stream = Stream::out;
  bool whole = true;  ///< false: the rank's line continues in its next one
  std::string text;

  /// "2026-11-22T08:19:05.123Z 3 out TEXT", and "out+" for a line that continues; no newline.
  std::string to_text() const;
  /// corrupt: it is not such a line.
  static Result<LogLine> parse(std::string_view line);
};

/// "out", "err" or "run".
const char* stream_name(LogLine::Stream stream);

/// "2026-11-22T08:19:05.123Z"
std::string log_time(double time);

/// The name of a file of a log. Their order is that of time.
struct LogFile {
  std::uint32_t job = 0;
  std::uint32_t restart = 0;
  std::uint32_t attempt = 0;
  std::uint32_t part = 0;  ///< from 1

  std::string name() const;
  static std::optional<LogFile> parse(std::string_view name);
  auto operator<=>(const LogFile&) const = default;
};

/// The directory of the logs of a checkpoint directory.
std::string log_dir_of(const std::string& checkpoint_dir);

/// The files of a job's log, oldest first; none where there is no such directory.
std::vector<LogFile> log_files(const std::string& log_dir, std::uint32_t job);

}  // namespace bellows
