// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "launcher/steer/job_stop.h"
#include "launcher/steer/steering.h"
#include "slurm/interface.h"

namespace bellows {

/// Stops a job at a checkpoint and has Slurm hold it; one that waits is held as it is. If the
/// caller goes away, the launcher does the rest. Called by root it acts as the job's owner.
class Halt {
 public:
  /// `from_scratch`: also when the program has no checkpoint to go on from.
  Halt(Steering steering, const JobName& name, bool from_scratch)
      : steering_(std::move(steering)), name_(name), from_scratch_(from_scratch) {}
  std::optional<CommandFailure> run();

  const SlurmJob& job() const { return job_; }
  bool was_pending() const { return job_.state == SlurmState::pending; }
  bool was_held() const { return was_pending() && job_.priority == 0; }
  const std::optional<std::uint64_t>& step() const { return step_; }
  double commit_s() const { return commit_s_; }

 private:
  std::optional<CommandFailure> hold_pending();
  std::optional<CommandFailure> requeue_held();

  Steering steering_;
  JobName name_;
  bool from_scratch_;
  SlurmJob job_;
  std::optional<JobStop> stop_;
  std::optional<std::uint64_t> step_;
  double commit_s_ = 0;
};

/// Releases a held job, at another size if that is wanted, and watches it start.
class Resume {
 public:
  struct Request {
    JobName job;
    std::optional<std::uint32_t> gpus;
    bool wait = true;
  };
  Resume(Steering steering, const Request& request)
      : steering_(std::move(steering)), request_(request) {}
  std::optional<CommandFailure> run();

  const SlurmJob& job() const { return job_; }
  std::uint32_t from() const { return from_; }
  bool waited() const { return request_.wait; }
  double seconds() const { return seconds_; }

 private:
  std::optional<CommandFailure> check() const;
  std::optional<CommandFailure> wait_until_cleaned();
  std::optional<CommandFailure> release();

  Steering steering_;
  Request request_;
  SlurmJob job_;
  std::uint32_t from_ = 0;
  double seconds_ = 0;
};

}  // namespace bellows
