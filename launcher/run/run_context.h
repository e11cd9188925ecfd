// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/protocol/attempt_name.h"
#include "common/access.h"
#include "common/contract.h"
#include "common/controller_address.h"
#include "common/launch_kind.h"
#include "common/result.h"
#include "launcher/machine/own_checkpoint.h"
#include "launcher/ranks/rank_command.h"
#include "launcher/record/batch_record.h"
#include "slurm/interface.h"

namespace bellows {

struct RunOptions {
  std::string checkpoint_dir;  ///< empty: the contract's, else bellows-JOBID
  std::uint32_t keep = 3;
  std::uint64_t keep_every = 0;  ///< 0: none
  std::uint32_t max_restarts = 3;
  std::uint32_t log_mib = 256;      ///< for all logs of the job; 0: none
  std::uint32_t start_limit = 600;  ///< seconds until all ranks have joined; 0: any time
  std::string on_drain = "leave";   ///< or "stay": what to do when a node is drained
  std::uint32_t hang_floor = 300;   ///< seconds without progress before a hang is called; 0: never
  std::string kind;                 ///< empty: the framework's first, else mpi
  std::string cpu_bind = "near";    ///< near: the plugin's choice; else srun's
  ParamServerOptions server;        ///< of kind ps
  OwnCheckpoint own;
  std::string checkpoint_signal;     ///< as it was given
  std::uint32_t stopped_status = 0;  ///< 0: none was given
  std::vector<std::string> command;
};

/// Where bellowsd is, for a job whose size it may change.
struct ControllerPlace {
  ControllerAddress address;
  uid_t slurm_user = 0;
  std::string munge_socket;  ///< empty: the usual one
};

/// Where a launcher runs and where it keeps its files.
struct RunContext {
  RunOptions options;
  std::uint32_t job_id = 0;
  RunName run;
  std::string program;  ///< this binary
  std::string run_dir;  ///< private to the user, on this node
  std::optional<Contract> contract;
  OrderedBatch ordered;
  std::string checkpoint_dir;
  std::string trusted_base;       ///< how checkpoint_dir begins, see StorePlace
  Access access = Access::owner;  ///< to what the job stores
  LaunchKind launch = LaunchKind::mpi;
  std::optional<ControllerPlace> controller;  ///< none: bellowsd may not change the job's size

  std::string agent_socket() const { return run_dir + "/agent.sock"; }
  std::string server_socket() const { return run_dir + "/ps.sock"; }
  std::string control_socket() const { return run_dir + "/run.sock"; }
};

/// Reads the environment and makes the directories. `job` is what Slurm says about this job.
Result<RunContext> make_run_context(const RunOptions& options, const SlurmJob& job);

}  // namespace bellows
