// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/result.h"
#include "common/slurm_client.h"
#include "launcher/child.h"

namespace bellows {

struct ResizeRequest {
  JobName job;
  std::uint32_t gpus = 0;
  std::chrono::seconds timeout{600};  ///< for the whole of it
  bool from_scratch = false;          ///< also when the program has no checkpoint to go on from
};

/// What a resize did and how long its parts took.
struct ResizeReport {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  bool was_pending = false;           ///< only the request of a waiting job was changed
  bool unchanged = false;             ///< it had that size already
  std::optional<std::uint64_t> step;  ///< the step it goes on from
  double commit_s = 0;                ///< from the demand to the commit
  double requeue_s = 0;               ///< from the requeue to RUNNING
  SlurmJob job;                       ///< as it was at the end
};

struct ResizeFailure {
  int exit_status = 1;
  std::string text;  ///< what went wrong and what state the job is in
};

/// Moves a job to another number of GPUs, from outside the job. Called by root it drops root's
/// rights for good and acts as the job's owner. Stops it at a checkpoint through its launcher,
/// requeues it, sets the size and watches it start. Whatever happens to the caller, the job goes
/// on: from the demand on its launcher finishes the move alone.
class Resize {
 public:
  using Say = std::function<void(const std::string&)>;

  /// `program`: this binary as the job's nodes see it. `say` gets progress lines; `interrupted` is
  /// asked between the parts.
  Resize(SlurmClient& slurm, ResizeRequest request, std::string program, Say say,
         std::function<bool()> interrupted);

  /// The report, or why not.
  std::optional<ResizeFailure> run();
  const ResizeReport& report() const { return report_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Failure = std::optional<ResizeFailure>;

  Failure check(const SlurmJob& job);
  Failure become_owner();
  Failure change_pending();
  void warn_of_waiting_jobs();
  Failure stop_at_checkpoint();
  Failure ask_launcher(std::string& not_yet);
  Failure requeue();
  Failure wait_until_running();
  Failure verify();
  Failure stopped_waiting(const std::string& state) const;
  bool out_of_time() const { return Clock::now() >= deadline_; }

  SlurmClient& slurm_;
  ResizeRequest request_;
  std::string program_;
  Say say_;
  std::function<bool()> interrupted_;
  Clock::time_point deadline_;
  Clock::time_point requeued_;
  std::optional<Child> control_;  ///< kept until it ends by itself: see ask_launcher
  SlurmJob job_;
  ResizeReport report_;
};

}  // namespace bellows
