// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "common/result.h"
#include "launcher/logs/log_line.h"

namespace bellows {

/// Which lines of a log are wanted.
struct LogFilter {
  std::set<std::uint32_t> ranks;  ///< empty: all, and what srun and the launcher say
  double since = 0;
  std::optional<std::uint32_t> restart;
  std::optional<std::uint32_t> attempt;

  bool wants(const LogFile& file) const;
  bool wants(const LogLine& line) const;
};

/// "1.2": the second attempt of the first restart; "1": all attempts of it. False: it is neither.
bool parse_attempt(const std::string& text, LogFilter& filter);
/// "0,2-5". False: it is not a list of ranks.
bool parse_ranks(const std::string& text, LogFilter& filter);

/// Reads a job's log from its oldest file on, and again what has come since.
class LogReader {
 public:
  using Take = std::function<void(const LogFile&, const LogLine&)>;

  LogReader(std::string log_dir, std::uint32_t job, LogFilter filter)
      : dir_(std::move(log_dir)), job_(job), filter_(std::move(filter)) {}
  /// Passes on what is new. not_found: there is no log (yet).
  Status read(const Take& take);
  /// Lines that could not be read.
  std::size_t damaged() const { return damaged_; }

 private:
  Status read_file(const LogFile& file, const Take& take);
  void take_lines(const LogFile& file, const Take& take);

  std::string dir_;
  std::uint32_t job_;
  LogFilter filter_;
  std::optional<LogFile> at_;
  std::int64_t offset_ = 0;
  std::string rest_;  ///< a line that is still being written
  std::size_t damaged_ = 0;
};

}  // namespace bellows
