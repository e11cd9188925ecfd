// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "slurm/interface.h"

namespace bellows {

/// One run of a job as Slurm's accounting keeps it: a requeue begins another one.
struct SlurmRun {
  std::uint32_t job = 0;
  std::string array_task;                    ///< "12_3"; empty: no task of a job array
  std::string state;                         ///< Slurm's word: COMPLETED, NODE_FAIL, REQUEUED, ...
  std::string by;                            ///< who cancelled it; empty: nobody, or unknown
  double submit = 0;                         ///< or when it was requeued
  double start = 0;                          ///< 0: it never did
  double end = 0;                            ///< 0: it has not ended
  std::optional<std::uint32_t> exit_status;  ///< of the batch script, as wait(2) gives it
  std::uint32_t gpus = 0;
  std::string nodes;  ///< as Slurm writes them: n[1-2]
  std::string user;
  std::string account;
  std::string admin_comment;
  std::string work_dir;
};

/// The question whose answer the parser below takes.
std::vector<std::string> ask_records(const JobName& job);

/// Oldest first. invalid: a sentence on the first line that cannot be an answer.
Result<std::vector<SlurmRun>> parse_records(std::string_view text);

/// Asks slurmdbd through sacct, a program of its own: unlike a call of libslurm it can be given up.
/// unavailable: accounting is off, or gives no answer; says why.
Result<std::vector<SlurmRun>> load_records(const JobName& job);

}  // namespace bellows
