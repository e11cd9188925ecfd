// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "slurm/interface.h"

namespace bellows {

/// What Slurm says about the time that a running job has.
struct JobLimits {
  std::int64_t left = 0;   ///< seconds until its end, at the time of the answer
  std::int64_t total = 0;  ///< seconds from its start to its end
  bool preempted = false;  ///< the grace time of its preemption is running
  SlurmGrace grace;

  std::string to_line() const;
  static std::optional<JobLimits> from_line(const std::string& line);
  bool operator==(const JobLimits&) const = default;
};

/// Asks slurmctld for a job's limits. Their line; empty when there is no answer or the job does not
/// run.
std::string probe_limits(Slurm& slurm, std::uint32_t id);

}  // namespace bellows
