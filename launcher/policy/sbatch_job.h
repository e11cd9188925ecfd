// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "jobsubmit/admission/admission.h"

namespace bellows {

/// A job as sbatch would send it to slurmctld, as far as admission looks at it.
struct SbatchJob {
  Request request;                     ///< without its origin, but for account and partition
  std::vector<std::string> looked_at;  ///< each option, and where it stands unless on the command
                                       ///< line: "--gpus=4 (SBATCH_GPUS)"
  std::vector<std::string> not_looked_at;        ///< names of the others
  std::map<std::string, std::string> for_rules;  ///< what only a site's rules see, by option
  std::string script;                            ///< the batch script's path; empty: none
};

/// The value of an environment variable, or null.
using GetEnv = std::function<const char*(const char* name)>;
/// The text of a batch script.
using ReadScript = std::function<Result<std::string>(const std::string& path)>;

/// Reads sbatch's arguments, its environment and the script's #SBATCH lines, as sbatch of Slurm
/// 22.05 does: the command line wins over the environment, and that over the script.
/// invalid: what sbatch would not take. Other errors: those of `read_script`.
Result<SbatchJob> read_sbatch(const std::vector<std::string>& arguments, const GetEnv& environment,
                              const ReadScript& read_script);

}  // namespace bellows
