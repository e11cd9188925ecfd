// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/access.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// Passes on what the ranks write: as it is to the job's own output and error, and with time and
/// rank to the job's log. It works in a thread of its own: whoever does not take the output holds
/// up the ranks, as with plain srun, but never the launcher.
class OutputRelay {
 public:
  struct Options {
    std::string log_dir;
    std::uint32_t job = 0;
    std::uint32_t restart = 0;
    std::uint64_t log_bytes = 0;  ///< 0: no log
    Access access = Access::owner;
    int out = 1;
    int err = 2;
  };

  static Result<OutputRelay> start(const Options& options);
  OutputRelay(OutputRelay&&) = default;
  OutputRelay& operator=(OutputRelay&&) = delete;
  ~OutputRelay();

  /// The read ends, non-blocking, of the output and error of an attempt's `srun --label`. Errors of
  /// those before are only passed on from here on.
  void attach(std::uint32_t restart, std::uint32_t attempt, Fd out, Fd err);
  /// A line of the launcher itself, behind what the ranks wrote before it. Never blocks.
  void say(const std::string& line);
  /// Readable once srun or slurmstepd has written to standard error, until take_errors().
  void add_poll(std::vector<pollfd>& fds) const;
  /// What came on the standard errors since the last call. A rank's line is the rank's, whatever it
  /// says: it may be of an srun that the rank has started. But a slurmstepd writes to the standard
  /// error of its first rank, and its lines cannot be told from that rank's.
  struct Errors {
    std::vector<std::string> ranks;  ///< the newest
    std::vector<std::string> slurm;
  };
  /// Never blocks.
  Errors take_errors();
  /// Waits until all streams have come to their ends, but no longer than this. True: they have.
  bool settle(std::chrono::milliseconds limit);
  /// Passes on what is there, up to the ends of the streams, but takes no longer than this.
  void close(std::chrono::milliseconds limit);

 private:
  struct Shared;
  explicit OutputRelay(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<Shared> shared_;
};

}  // namespace bellows
