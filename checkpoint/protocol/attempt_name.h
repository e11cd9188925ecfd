// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bellows {

/// One run of a job, as the names of its attempts tell of it. Slurm's numbers alone don't: a
/// slurmctld that was killed may have lost a run and count it again, and an id comes back after a
/// loss of all state. A value.
struct RunName {
  std::uint32_t job = 0;
  std::uint32_t restart = 0;
  std::uint64_t submitted = 0;  ///< Slurm's SubmitTime, which each requeue sets again; 0: not known
  std::string random;           ///< chosen by its launcher

  static RunName make(std::uint32_t job, std::uint32_t restart, std::uint64_t submitted);
  /// Nothing: the attempt belongs to no job.
  static std::optional<RunName> of_attempt(std::string_view attempt);

  /// JOB.RESTART.SUBMITTED.RANDOM
  std::string to_string() const;
  /// JOB.RESTART.SUBMITTED.RANDOM.NUMBER
  std::string attempt(std::uint32_t number) const;
  bool operator==(const RunName&) const = default;
};

/// Of a program that runs outside a job: HOST.PID.TIME.RANDOM
std::string program_attempt(const std::string& host);

}  // namespace bellows
