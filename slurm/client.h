// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "slurm/interface.h"

namespace bellows {

/// slurmctld through libslurm. Only one may live in a process at a time: libslurm keeps its
/// configuration in globals. Without a usable slurm.conf libslurm itself prints a message and ends
/// the process when the client is made: see usable().
class SlurmClient final : public Slurm {
 public:
  /// Whether a client can be made: unavailable when libslurm would end the process.
  static Status usable();

  SlurmClient();

  /// SlurmUser, whom slurmctld and, mostly, bellowsd run as.
  uid_t slurm_user() const;
  /// AuthInfo of slurm.conf.
  std::string auth_info() const;
  /// StateSaveLocation of slurm.conf, which all controllers of a cluster share.
  std::string state_save_location() const;
  /// Whether this node has a plugin such as "mpi_pmix".
  bool has_plugin(const std::string& name) const;

  Result<SlurmJob> job(std::uint32_t id) override;
  Result<SlurmJob> job(const JobName& name) override;
  Result<std::vector<SlurmJob>> jobs() override;
  /// Those of one user: slurmctld sends no others.
  Result<std::vector<SlurmJob>> jobs_of(uid_t user);
  Result<std::vector<SlurmStep>> steps(std::uint32_t job) override;
  Result<SlurmGrace> grace_of(const SlurmJob& job) override;
  Status requeue_running(std::uint32_t id) override;
  Status requeue(std::uint32_t id) override;
  Status requeue_held(std::uint32_t id) override;
  Status may_change_size(const SlurmJob& job, std::uint32_t gpus) override;
  Status change(const SlurmJob& job, const SlurmJobChange& change) override;
  bool requeues_the_finished() const override;
  Status signal_step(std::uint32_t job, std::uint32_t step, int signal) override;
};

}  // namespace bellows
