// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "common/fd.h"
#include "common/slurm_client.h"

namespace bellows {

/// What Slurm says of the time that a running job has.
struct JobLimits {
  std::int64_t left = 0;   ///< seconds until its end, at the time of the answer
  std::int64_t total = 0;  ///< seconds from its start to its end
  bool preempted = false;  ///< the grace time of its preemption is running
  SlurmGrace grace;

  std::string to_line() const;
  static std::optional<JobLimits> from_line(const std::string& line);
  bool operator==(const JobLimits&) const = default;
};

/// Asks slurmctld for a job's limits, in a child process: one that does not answer must not hold up
/// the commits of its caller, who has one thread.
class LimitProbe {
 public:
  LimitProbe() = default;
  LimitProbe(const LimitProbe&) = delete;
  LimitProbe& operator=(const LimitProbe&) = delete;
  ~LimitProbe() { end(); }

  void ask(SlurmClient& slurm, std::uint32_t job);
  bool asking() const { return pid_ > 0; }
  int fd() const { return pipe_.get(); }
  /// The answer, once; none while it is under way, and when there is none or the job does not run.
  std::optional<JobLimits> take();

 private:
  void end();
  pid_t pid_ = -1;
  Fd pipe_;
  std::string text_;
};

}  // namespace bellows
