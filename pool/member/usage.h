// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>

namespace bellows::pool {

/// What a program and all that it has started have used.
struct TreeUsage {
  double cpu_seconds = 0;   ///< of ended children too, once they were waited for
  std::uint64_t bytes = 0;  ///< of memory, resident
};

/// Nothing: there is no such process. A process that leaves its parent is not counted.
std::optional<TreeUsage> usage_of(pid_t root);

/// How much of what its job has on this node a program uses. Not by cgroups: which of them Slurm
/// uses, if any, is the site's choice.
class Usage {
 public:
  using Clock = std::chrono::steady_clock;

  /// `cpus` that the job has here; `memory_bytes` 0: it has no limit.
  Usage(double cpus, std::uint64_t memory_bytes) : cpus_(cpus), memory_bytes_(memory_bytes) {}
  /// What Slurm says in the environment of a batch script.
  static Usage of_job();

  void look(pid_t program, Clock::time_point now);
  /// Between the last two looks; 1: all of it. Nothing: not known.
  std::optional<double> cpu() const { return cpu_; }
  std::optional<double> memory() const { return memory_; }

 private:
  double cpus_;
  std::uint64_t memory_bytes_;
  std::optional<TreeUsage> before_;
  Clock::time_point looked_;
  std::optional<double> cpu_;
  std::optional<double> memory_;
};

}  // namespace bellows::pool
