// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/contract.h"
#include "common/result.h"
#include "launcher/record/event_log.h"
#include "launcher/record/model_progress.h"
#include "launcher/record/server_record.h"
#include "slurm/interface.h"

namespace bellows {

/// A job as `bellows status` shows it: Slurm's record, the contract and the last events together.
struct JobView {
  SlurmJob job;
  std::optional<Contract> contract;    ///< none: the job asked for nothing of Bellows
  std::string checkpoint_dir;          ///< empty when it cannot be worked out
  std::vector<JobEvent> events;        ///< the last ones, oldest first; empty when unreadable
  std::vector<NodeModels> loading;     ///< nodes that load models which the job named
  std::optional<ServerRecord> server;  ///< of kind ps; none: nothing is known of now

  /// The state in Bellows' words: QUEUED, DEPLOYING, RUNNING (no launcher has begun), DOWNLOADING,
  /// PROCESSING, CHECKPOINTING, RESIZING, STORING, COMPLETED, FAILED, HALTED or CANCELLED. Slurm's
  /// record wins over the events.
  std::string state() const;
  /// Why it is in that state, or what it did last, for a person: never at odds with the state.
  std::string last_words() const;
  /// Whether its nodes may be loading models: it names some, runs, and has not stored a step in
  /// this run, which it does only with its models.
  bool may_be_loading() const;
  std::optional<std::uint64_t> step() const;
  const JobEvent* last_event() const { return events.empty() ? nullptr : &events.back(); }

 private:
  /// `state` but for `loading`.
  std::string state_without_models() const;
  std::string wait() const;
  std::string end() const;
};

/// The contract in the job's AdminComment, which users cannot edit. none: there is none; invalid:
/// there is one that this version cannot read.
Result<std::optional<Contract>> contract_of(const SlurmJob& job);

/// Where a job keeps its checkpoints when `bellows run` is not told otherwise: the contract's
/// directory, else bellows-JOBID in the job's working directory.
Result<std::string> checkpoint_dir_of(const SlurmJob& job, const std::optional<Contract>& contract);

/// The name of a user id, or its number.
std::string user_name(uid_t uid);

}  // namespace bellows
