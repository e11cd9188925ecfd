// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "slurm/job.h"
#include "slurm/job_name.h"

namespace bellows {

/// slurmctld, as the launcher and the commands ask it: SlurmClient through libslurm, and a fake in
/// unit tests. Used by one thread.
///
/// Errors: unavailable (no answer; says nothing about the job), not_found (no such job), denied,
/// invalid (Slurm refused the request). The text contains Slurm's own message.
class Slurm {
 public:
  Slurm() = default;
  Slurm(const Slurm&) = delete;
  Slurm& operator=(const Slurm&) = delete;
  virtual ~Slurm() = default;

  virtual Result<SlurmJob> job(std::uint32_t id) = 0;
  /// What a user means; the id of a job array names none of its tasks: invalid.
  virtual Result<SlurmJob> job(const JobName& name) = 0;
  virtual Result<std::vector<SlurmJob>> jobs() = 0;
  /// Running steps of a job: what srun started, without the batch and extern steps.
  virtual Result<std::vector<SlurmStep>> steps(std::uint32_t job) = 0;

  virtual Result<SlurmGrace> grace_of(const SlurmJob& job) = 0;

  /// Requeues a running or suspended job; another is left as it is, which is a success.
  virtual Status requeue_running(std::uint32_t id) = 0;
  /// Requeues the job in whatever state it is, also when it just ended; one that is queued stays.
  virtual Status requeue(std::uint32_t id) = 0;
  /// The same for a running job that is to be held until it is released.
  virtual Status requeue_held(std::uint32_t id) = 0;
  /// Whether slurmctld would let a running job have so many GPUs, which it asks the policy first.
  virtual Status may_change_size(const SlurmJob& job, std::uint32_t gpus) = 0;
  /// All changes in one request. Slurm applies it field by field: after an error some may hold.
  virtual Status change(const SlurmJob& job, const SlurmJobChange& change) = 0;
  /// Whether Slurm may requeue a job even when its script ends well.
  virtual bool requeues_the_finished() const = 0;
  virtual Status signal_step(std::uint32_t job, std::uint32_t step, int signal) = 0;
};

}  // namespace bellows
