// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "launcher/steer/steering.h"

namespace bellows {

/// The process of a command that steers a job: its signals, its progress lines, and its deadline,
/// which holds also while a call of libslurm waits for a slurmctld that is not there.
class SteerProcess {
 public:
  /// `name`: "resize". `json`: progress goes to standard error.
  SteerProcess(std::string name, std::chrono::seconds timeout, bool json);
  ~SteerProcess();
  SteerProcess(const SteerProcess&) = delete;
  SteerProcess& operator=(const SteerProcess&) = delete;

  Steering steering(Slurm& slurm) const;
  /// Prints why, and gives the exit status.
  int fail(const CommandFailure& failure) const;

 private:
  struct Watch;
  std::string name_;
  bool json_;
  std::shared_ptr<Watch> watch_;
};

}  // namespace bellows
